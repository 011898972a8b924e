#!lua flags=allow-oom
-- Tells news to those that are there, and writes them down for those that come later.
--
-- KEYS: what was said. ARGV: subject, word, how many microseconds it lasts, another number, channel, who tells it.
-- Of a subject is kept: who, when, word, until when, another number.
-- Answers when it was: of one subject later than all before it.
local subject, word, who = ARGV[1], ARGV[2], ARGV[6]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local function text(n)
  return string.format('%.0f', n)
end

local function parts(said)
  local by, at, what, till, more = string.match(said or '', '^(%d+) (%d+) (%l+) (%d+) (%d+)$')
  return by, tonumber(at), what, tonumber(till), more
end

-- What is over goes: somewhat more than comes.
local some = redis.call('HRANDFIELD', KEYS[1], 4, 'WITHVALUES')
for i = 1, #some, 2 do
  local _, _, _, till = parts(some[i + 1])
  if not till or till <= now then
    redis.call('HDEL', KEYS[1], some[i])
  end
end

local by, before, what, lasted = parts(redis.call('HGET', KEYS[1], subject))
local at = math.max(now, (before or 0) + 1)
local till = now + tonumber(ARGV[3])
local teller = who
if word == 'release' or word == 'close' then
  -- For as long as somebody may come who has not heard of it and knows what it ended.
  till = lasted or now
elseif word == 'hold' and what == 'hold' and lasted > till then
  till, teller = lasted, by
end
if till > now then
  redis.call('HSET', KEYS[1], subject, table.concat({ teller, text(at), word, text(till), ARGV[4] }, ' '))
  local stays = math.max(redis.call('PTTL', KEYS[1]), math.ceil((till - now) / 1000))
  redis.call('PEXPIRE', KEYS[1], text(stays))
end
redis.call('PUBLISH', ARGV[5], table.concat({ who, text(at), word, ARGV[3], ARGV[4], subject }, ' '))
return at
