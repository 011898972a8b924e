-- Asks for a batch and takes it: of each request all or nothing, in order. The same arithmetic as in tally/, in whole
-- microseconds of the server's time.
--
-- KEYS: the clock, then the limits. ARGV: process, number, lag, lease, channel, then for each limit
--   its kind and four numbers (w, t: count, period; s: interval, largest; b: interval, burst; c: count),
--   held, epoch, newest, how many things are told, those (ago and cost; or what is owed), how many things servers said,
--   those (window or 0 for all, left, epoch and number of the start that was answered or 0 and 0, 1 if it was said without
--   a start, time to the reset);
-- then the number of requests, for each the number of takes, for each the limit, the cost, the reserve.
-- Answers now, {taken or not, for each request} and, for each limit, wait or -1, how much those leave to others that are to wait,
-- epoch, newest, lost or not, and of w, t and b the start of the count, how much was given since, its own room, how many
-- windows of servers stand, those (window, left).
local CATCH_UP = 2000
local CELLS = 10
local SETTLE = 200000
local TURN = 25000

local at = 5
local function number()
  at = at + 1
  return tonumber(ARGV[at])
end
local function word()
  at = at + 1
  return ARGV[at]
end

local process = ARGV[1]
local question = tonumber(ARGV[2])
local lag = tonumber(ARGV[3])
local lease = tonumber(ARGV[4])

local limits = {}
local longest = 0
for i = 1, #KEYS - 1 do
  local l = { key = KEYS[i + 1], kind = word(), a = number(), b = number() }
  l.held, l.epoch_known, l.newest_known = number(), number(), number()
  l.told = {}
  for j = 1, number() do
    if l.kind == 's' or l.kind == 'b' then
      l.told[j] = number()
    else
      l.told[j] = { number(), number() }
    end
  end
  l.said = {}
  for j = 1, number() do
    l.said[j] = { name = number(), left = number(), epoch = number(), number = number(), is_now = number() == 1, reset = number() }
  end
  l.narrowed = l.kind == 'w' or l.kind == 't' or l.kind == 'b'
  l.given, l.windows = 0, {}
  local span = lease
  if l.kind == 'w' or l.kind == 't' then
    span = l.b + l.b / CELLS
  elseif l.kind == 's' or l.kind == 'b' then
    span = l.a * l.b
  end
  longest = math.max(longest, span)
  l.settles = 0
  limits[i] = l
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local seen = tonumber(redis.call('GET', KEYS[1]) or 0)
-- A clock that was set back stands still; one that was set back by more than anything lasts is another clock.
if seen > now and seen - now <= longest + 1000000 then
  now = seen
end

local function millis(micros)
  -- One more, as the server counts them from the last whole one before now.
  return text(math.ceil(micros / 1000) + 1)
end

local function width(l)
  return math.max(math.ceil(l.b / CELLS), 1)
end

local function gone(l, cell)
  return (cell + 1) * width(l) + l.b
end

-- Counts what is over of the oldest starts, of which so many were read; reads more where all of those are.
local function count_over(l, look)
  while true do
    -- The newest one is not over.
    while tonumber(l.first[l.popped + 1] or now) + l.b <= now do
      l.popped = l.popped + 1
    end
    if l.popped < #l.first then
      break
    end
    look = 2 * look + 2
    for _, date in ipairs(redis.call('LRANGE', l.key, #l.first + 1, look)) do
      l.first[#l.first + 1] = date
    end
  end
  l.used = l.used - l.popped
end

-- Reads a limit, forgets what is over, hears what is told, and sees whether anything was lost.
local function open_list(l, asked)
  local length = redis.call('LLEN', l.key)
  l.used, l.fresh, l.popped, l.first, l.newest = math.max(length - 1, 0), length == 0, 0, {}, 0
  if l.fresh then
    l.epoch = now
  else
    -- As many of the oldest as would have to go for everything that is asked and left to others.
    local look = math.max(l.used + asked - l.a, 0) + 1
    local all = redis.call('LRANGE', l.key, 0, look)
    for i = 2, #all do
      l.first[i - 1] = all[i]
    end
    local epoch, settles, given = string.match(all[1], '^(%d+)/(%d+)/(.*)$')
    l.epoch, l.settles = tonumber(epoch), tonumber(settles)
    read_given(l, given, now)
    if l.used > 0 then
      l.newest = tonumber(#l.first == l.used and l.first[l.used] or redis.call('LINDEX', l.key, -1))
    end
    if l.newest + l.b > now then
      count_over(l, look)
    else
      -- All is over: whatever comes begins anew.
      redis.call('DEL', l.key)
      l.fresh, l.used, l.newest, l.first = true, 0, 0, {}
      if l.settles <= now and #l.windows == 0 then
        l.epoch, l.settles, l.given = now, 0, 0
      end
    end
  end
  l.added = {}
  if #l.told > 0 then
    local all = {}
    if l.used > 0 then
      for _, date in ipairs(redis.call('LRANGE', l.key, 1 + l.popped, -1)) do
        if tonumber(date) + l.b > now then
          all[#all + 1] = tonumber(date)
        end
      end
    end
    for _, start in ipairs(l.told) do
      local date = now - start[1]
      if date + l.b > now then
        for _ = 1, start[2] do
          all[#all + 1] = date
        end
      end
    end
    table.sort(all)
    redis.call('DEL', l.key)
    l.fresh, l.popped, l.used, l.added, l.newest = true, 0, #all, all, all[#all] or 0
    l.first = all
  end
  l.lost = l.epoch_known ~= 0 and l.newest_known + l.b > now and l.epoch_known ~= l.epoch
end

local function open_cells(l)
  l.cells, l.used, l.epoch = {}, 0, now
  local all = redis.call('HGETALL', l.key)
  l.fresh = #all == 0
  for i = 1, #all, 2 do
    if all[i] == 'e' then
      l.epoch = tonumber(all[i + 1])
    elseif all[i] == 's' then
      l.settles = tonumber(all[i + 1])
    elseif all[i] == 'g' then
      read_given(l, all[i + 1], now)
    else
      local cell = tonumber(all[i])
      if gone(l, cell) > now then
        l.cells[cell] = tonumber(all[i + 1])
      else
        redis.call('HDEL', l.key, all[i])
      end
    end
  end
  if not l.fresh and not next(l.cells) and l.settles <= now and #l.windows == 0 then
    redis.call('DEL', l.key)
    l.fresh, l.epoch, l.settles, l.given = true, now, 0, 0
  end
  l.changed = {}
  for _, start in ipairs(l.told) do
    local cell = math.floor((now - start[1]) / width(l))
    if gone(l, cell) > now then
      l.cells[cell] = (l.cells[cell] or 0) + start[2]
      l.changed[cell] = true
    end
  end
  l.newest = 0
  for cell, count in pairs(l.cells) do
    l.used = l.used + count
    l.newest = math.max(l.newest, cell)
  end
  l.lost = l.epoch_known ~= 0 and gone(l, l.newest_known) > now and l.epoch_known ~= l.epoch
end

local function open_due(l)
  local kept = redis.call('GET', l.key)
  l.was, l.due, l.epoch = kept, 0, now
  if kept and l.kind == 'b' then
    local due, epoch, given = string.match(kept, '^(%d+)/(%d+)/(.*)$')
    l.due, l.epoch = tonumber(due), tonumber(epoch)
    read_given(l, given, now)
  elseif kept then
    l.due = tonumber(kept)
  end
  if l.due + CATCH_UP <= now then
    l.due = 0
    if #l.windows == 0 then
      l.epoch, l.given = now, 0
    end
  end
  if l.told[1] then
    l.due = math.max(l.due, now + l.told[1])
  end
  local known = math.min(l.newest_known, now + l.a * l.b)
  l.lost = known > math.max(l.due, now)
  l.due = math.max(l.due, known)
end

local function open_slots(l)
  l.used, l.mine, l.soonest, l.latest, l.waiting = 0, 0, nil, 0, {}
  local all = redis.call('HGETALL', l.key)
  for i = 1, #all, 2 do
    if all[i] == 'w' then
      for other in string.gmatch(all[i + 1], '%d+') do
        l.waiting[#l.waiting + 1] = other
      end
    elseif all[i] == 'n' then
      local who, till = string.match(all[i + 1], '^(%d+):(%d+)$')
      l.next, l.next_till = who, tonumber(till)
    elseif all[i] == 's' then
      l.settles = tonumber(all[i + 1])
    else
      local count, till, asked = string.match(all[i + 1], '^(%d+):(%d+):(%d+)$')
      count, till, asked = tonumber(count), tonumber(till), tonumber(asked)
      if till <= now then
        redis.call('HDEL', l.key, all[i])
      elseif all[i] == process then
        if asked > question then
          l.stale = true
          l.closed = 0
        end
        l.before = count
      else
        l.used = l.used + count
        l.soonest = math.min(l.soonest or till, till)
        l.latest = math.max(l.latest, till)
      end
    end
  end
  if l.stale then
    return
  end
  if l.used == 0 and not l.before and l.settles <= now and not (l.next and l.next_till > now) then
    -- All is over: whatever comes begins anew.
    redis.call('DEL', l.key)
    l.waiting, l.next = {}, nil
  end
  if l.next and (l.next == process or l.next_till <= now) then
    l.next = nil
    redis.call('HDEL', l.key, 'n')
  end
  if (l.before or 0) > l.held and #l.waiting > 0 then
    redis.call('PUBLISH', ARGV[5], 'freed ' .. l.key)
    -- Who frees one while others wait lets the first of them go first, who hears of it only now.
    if not l.next and l.waiting[1] ~= process then
      l.next, l.next_till = table.remove(l.waiting, 1), now + math.max(lag, TURN)
    end
  end
  if l.next then
    l.closed = l.next_till - now
  end
  l.lost = l.held > 0 and not l.before
  l.mine = l.held
  l.used = l.used + l.held
  if l.held > 0 then
    l.soonest = math.min(l.soonest or now + lease, now + lease)
  end
end

local requests = {}
local wanted = {}
for i = 1, number() do
  local takes = {}
  for j = 1, number() do
    local take = { limits[number() + 1], number(), number() }
    takes[j] = take
    wanted[take[1]] = (wanted[take[1]] or 0) + take[2] + take[3]
  end
  requests[i] = takes
end

for _, l in ipairs(limits) do
  if l.kind == 'w' then
    open_list(l, wanted[l] or 0)
  elseif l.kind == 't' then
    open_cells(l)
  elseif l.kind == 'c' then
    open_slots(l)
  else
    open_due(l)
  end
  if l.narrowed then
    local frees = false
    for _, said in ipairs(l.said) do
      frees = hear(l, said, now) or frees
    end
    if frees then
      -- Those that a server's window keeps are to ask again if there is more of it.
      redis.call('PUBLISH', ARGV[5], 'freed ' .. l.key)
    end
  end
  -- What was forgotten gives nothing until all that know of starts have told of them.
  if l.lost and l.kind ~= 's' and l.kind ~= 'b' then
    l.settles = now + SETTLE
    redis.call('PUBLISH', ARGV[5], 'lost ' .. text(l.epoch or 1) .. ' ' .. l.key)
  end
end

-- By how much a limit would be over.
local function over(l, cost, reserve)
  local count = l.a
  return l.used + cost - (count - math.min(reserve, math.max(count - cost, 0)))
end

-- Who asks for a slot and has none is one of those that wait.
local function stand_in_line(l)
  if l.kind ~= 'c' or l.stale then
    return
  end
  for _, other in ipairs(l.waiting) do
    if other == process then
      return
    end
  end
  l.waiting[#l.waiting + 1] = process
end

local function has_room(l, cost, reserve)
  if not l.closed and l.settles > now then
    l.closed = l.settles - now
  end
  -- To who leaves less to others than those that it is closed to it may not be.
  local before = l.closed
  if before and reserve >= (l.closed_to or 0) then
    stand_in_line(l)
    return false
  end
  l.closed = nil
  if l.kind == 's' then
    if l.due > now then
      l.closed = l.due - now
    end
  elseif l.kind == 'b' then
    local free = math.max(l.due, now) + l.a * cost - l.a * l.b
    if free > now then
      l.closed = free - now
    end
  else
    local more = over(l, cost, reserve)
    if more > 0 then
      if l.kind == 'w' then
        -- The oldest, and after them those that were just taken.
        local old = l.used - #l.added
        local date = l.first[l.popped + more]
        if not date and more > old then
          date = l.added[more - old]
        elseif not date then
          date = redis.call('LINDEX', l.key, l.popped + more)
        end
        l.closed = date and tonumber(date) + l.b - now or l.b
      elseif l.kind == 't' then
        local cells, sum = {}, 0
        for cell in pairs(l.cells) do
          cells[#cells + 1] = cell
        end
        table.sort(cells)
        l.closed = l.b
        for _, cell in ipairs(cells) do
          sum = sum + l.cells[cell]
          if sum >= more then
            l.closed = gone(l, cell) - now
            break
          end
        end
      else
        l.closed = l.soonest and l.soonest - now or 0
        stand_in_line(l)
      end
    end
  end
  local most = l.kind == 'b' and l.b or l.a
  keep(l, cost + math.min(reserve, math.max(most - cost, 0)), now)
  if l.closed then
    l.closed_to = reserve
    return false
  end
  l.closed = before
  return true
end

-- How much more there would be now if it were not for servers.
local function room(l)
  if l.settles > now then
    return 0
  elseif l.kind == 'b' then
    return math.max(math.floor((now + l.a * l.b - math.max(l.due, now)) / l.a), 0)
  end
  return math.max(l.a - l.used, 0)
end

local function take(l, cost)
  if l.narrowed then
    give(l, cost)
  end
  if l.kind == 'w' then
    local date = math.max(now + lag, l.newest)
    for _ = 1, cost do
      l.added[#l.added + 1] = date
    end
    l.newest, l.used = date, l.used + cost
  elseif l.kind == 't' then
    local cell = math.floor((now + lag) / width(l))
    l.cells[cell] = (l.cells[cell] or 0) + cost
    l.changed[cell] = true
    l.used, l.newest = l.used + cost, math.max(l.newest, cell)
  elseif l.kind == 'b' then
    l.due = math.max(l.due, now + lag) + l.a * cost
  elseif l.kind == 's' then
    l.due = (now + lag - l.due <= CATCH_UP and l.due or now + lag) + l.a * cost
  else
    for i, other in ipairs(l.waiting) do
      if other == process then
        table.remove(l.waiting, i)
        break
      end
    end
    l.mine, l.used = l.mine + cost, l.used + cost
    l.soonest = math.min(l.soonest or now + lease, now + lease)
  end
end

local taken = {}
for i, takes in ipairs(requests) do
  local fits = true
  for _, t in ipairs(takes) do
    if not has_room(t[1], t[2], t[3]) then
      fits = false
    end
  end
  if fits then
    for _, t in ipairs(takes) do
      take(t[1], t[2])
    end
  end
  taken[i] = fits and 1 or 0
end

local said = {}
local lasts = 0
for _, l in ipairs(limits) do
  local stays, till = 0, l.settles
  for _, w in ipairs(l.windows) do
    till = math.max(till, w.till)
  end
  if l.kind == 'w' then
    if l.used > 0 or till > now then
      local head = string.format('%.0f/%.0f/%s', l.epoch, l.settles, given_text(l))
      if l.fresh then
        redis.call('RPUSH', l.key, head)
      elseif l.popped > 0 then
        redis.call('LPOP', l.key, l.popped + 1)
        redis.call('LPUSH', l.key, head)
      elseif l.lost or l.changed_given then
        redis.call('LSET', l.key, 0, head)
      end
      for from = 1, #l.added, 500 do
        local dates = {}
        for i = from, math.min(from + 499, #l.added) do
          dates[#dates + 1] = text(l.added[i])
        end
        redis.call('RPUSH', l.key, unpack(dates))
      end
      stays = math.max(l.newest + l.b, till) - now
    elseif not l.fresh then
      redis.call('DEL', l.key)
    end
  elseif l.kind == 't' then
    if l.used > 0 or till > now then
      if l.fresh then
        redis.call('HSET', l.key, 'e', text(l.epoch))
      end
      if l.changed_given then
        redis.call('HSET', l.key, 'g', given_text(l))
      end
      if l.lost then
        redis.call('HSET', l.key, 's', text(l.settles))
      end
      for cell in pairs(l.changed) do
        redis.call('HSET', l.key, text(cell), text(l.cells[cell]))
      end
      stays = math.max(l.used > 0 and gone(l, l.newest) or 0, till) - now
    elseif not l.fresh then
      redis.call('DEL', l.key)
    end
  elseif l.kind == 'c' then
    if not l.stale then
      if l.mine > 0 then
        redis.call('HSET', l.key, process, text(l.mine) .. ':' .. text(now + lease) .. ':' .. text(question))
        l.latest = now + lease
      elseif l.before then
        redis.call('HDEL', l.key, process)
      end
      if #l.waiting > 0 then
        redis.call('HSET', l.key, 'w', table.concat(l.waiting, ' '))
      else
        redis.call('HDEL', l.key, 'w')
      end
      if l.next then
        redis.call('HSET', l.key, 'n', l.next .. ':' .. text(l.next_till))
        l.latest = math.max(l.latest, l.next_till)
      end
      if l.lost then
        redis.call('HSET', l.key, 's', text(l.settles))
      end
      stays = math.max(l.used > 0 and l.latest or 0, l.next and l.next_till or 0, l.settles) - now
      if stays <= 0 then
        redis.call('DEL', l.key)
      end
    end
    l.epoch, l.newest = 1, 0
  else
    stays = math.max(l.due + CATCH_UP, till) - now
    if stays > 0 then
      local kept = text(l.due)
      if l.kind == 'b' then
        kept = string.format('%s/%.0f/%s', kept, l.epoch, given_text(l))
      end
      redis.call('SET', l.key, kept, 'PX', millis(stays))
    elseif l.was then
      redis.call('DEL', l.key)
    end
    l.newest = l.due
  end
  if stays > 0 then
    redis.call('PEXPIRE', l.key, millis(stays))
  end
  lasts = math.max(lasts, stays)
  local is_due = l.kind == 's' or l.kind == 'b'
  said[#said + 1] = l.closed or -1
  said[#said + 1] = l.closed_to or 0
  said[#said + 1] = is_due and 1 or l.epoch
  said[#said + 1] = l.newest
  said[#said + 1] = l.lost and 1 or 0
  if l.narrowed then
    said[#said + 1] = l.epoch
    said[#said + 1] = l.given
    said[#said + 1] = room(l)
    said[#said + 1] = #l.windows
    for _, w in ipairs(l.windows) do
      said[#said + 1] = w.name
      said[#said + 1] = w.left
    end
  end
end
if lasts > 0 then
  -- It stays for as long as anything may that is written now or was before.
  redis.call('SET', KEYS[1], text(now), 'PX', millis(math.max(longest, lasts)))
end
return { now, taken, said }
