#!lua flags=allow-oom
-- Keeps the rules of the highest version, and tells all when those are others.
--
-- KEYS: the rules. ARGV: version, text, for how many microseconds, channel, who has them.
-- Answers version and text as they are kept now.
local version, text = ARGV[1], ARGV[2]
local stays = math.ceil(tonumber(ARGV[3]) / 1000) + 1
local kept = redis.call('HMGET', KEYS[1], 'version', 'text')

-- Numbers are compared as text: not all of them are numbers to Lua.
local function is_higher(a, b)
  return #a > #b or #a == #b and a > b
end

local is_known = kept[1] and kept[2] and string.match(kept[1], '^%d+$')
if not is_known or is_higher(version, kept[1]) then
  redis.call('HSET', KEYS[1], 'version', version, 'text', text)
  redis.call('PUBLISH', ARGV[4], ARGV[5] .. ' rules ' .. version)
  kept = { version, text }
end
if kept[1] == version and kept[2] == text then
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', stays))
end
return kept
