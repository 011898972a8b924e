-- What servers said of a limit, and how much was given of it: the same arithmetic as tally/said.rs. What follows is ask.lua.
local WINDOWS = 4
local SECOND = 1000000

local function text(n)
  return string.format('%.0f', n)
end

-- How much was given, and what servers leave of it, as text.
local function given_text(l)
  local kept = text(l.given)
  for _, w in ipairs(l.windows) do
    kept = string.format('%s/%.0f:%.0f:%.0f:%.0f:%.0f', kept, w.name, w.left, w.epoch, w.number, w.till)
  end
  return kept
end

-- The same back, without the windows that are over.
local function read_given(l, kept, now)
  l.given = tonumber(kept)
  if l.given then
    return
  end
  l.given = tonumber(string.match(kept, '^%d+'))
  for name, left, epoch, given, till in string.gmatch(kept, '/(%d+):(%d+):(%d+):(%d+):(%d+)') do
    if tonumber(till) > now then
      l.windows[#l.windows + 1] = {
        name = tonumber(name),
        left = tonumber(left),
        epoch = tonumber(epoch),
        number = tonumber(given),
        till = tonumber(till),
      }
    end
  end
end

-- Takes in what a server said, unless something newer is known. Returns whether more is left than was known, or sooner.
local function hear(l, said, now)
  local epoch, answered = said.epoch, said.number
  if epoch == 0 then
    epoch, answered = l.epoch, l.given
  end
  if said.name == 0 then
    -- Another server: none of its windows stand, but for those that were told of later.
    local left = {}
    for _, w in ipairs(l.windows) do
      if w.epoch > epoch or w.epoch == epoch and w.number > answered then
        left[#left + 1] = w
      end
    end
    local frees = #left < #l.windows
    l.windows, l.changed_given = left, l.changed_given or frees
    return frees
  end
  local since = epoch == l.epoch and math.max(l.given - answered, 0) or l.given
  local left, till = math.max(said.left - since, 0), now + said.reset
  local at, known
  for i, w in ipairs(l.windows) do
    if w.name == said.name then
      at, known = i, w
    end
  end
  if till <= now then
    return false
  end
  if known then
    local is_newer = known.epoch > epoch or known.epoch == epoch and known.number > answered
    local is_same = known.epoch == epoch and known.number == answered
    if is_newer or is_same and not said.is_now and known.left <= left then
      return false
    end
    table.remove(l.windows, at)
  end
  l.windows[#l.windows + 1] = { name = said.name, left = left, epoch = epoch, number = answered, till = till }
  local frees = known and (known.left < left or known.till > till + SECOND)
  if #l.windows > WINDOWS then
    local widest = 1
    for i, w in ipairs(l.windows) do
      if w.left >= l.windows[widest].left then
        widest = i
      end
    end
    frees = table.remove(l.windows, widest).name ~= said.name or frees
  end
  l.changed_given = true
  return frees
end

-- A limit is closed for as long as servers leave less than that.
local function keep(l, wanted, now)
  for _, w in ipairs(l.windows) do
    if w.left < wanted then
      l.closed = math.max(l.closed or 0, w.till - now)
    end
  end
end

local function give(l, cost)
  l.given, l.changed_given = l.given + cost, true
  for _, w in ipairs(l.windows) do
    w.left = math.max(w.left - cost, 0)
  end
end

