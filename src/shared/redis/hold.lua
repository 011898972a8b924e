#!lua flags=allow-oom
-- Writes a hold down for those that come later, unless a longer one is on, and tells it to those that are there.
--
-- KEYS: the holds. ARGV: what is held, how many microseconds, channel, who tells it.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local till = now + tonumber(ARGV[2])
local latest = till
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local other = tonumber(all[i + 1])
  if other <= now then
    redis.call('HDEL', KEYS[1], all[i])
  else
    latest = math.max(latest, other)
    if all[i] == ARGV[1] then
      till = math.max(till, other)
    end
  end
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', till))
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil((latest - now) / 1000)))
return redis.call('PUBLISH', ARGV[3], ARGV[4] .. ' hold ' .. ARGV[2] .. ' ' .. ARGV[1])
