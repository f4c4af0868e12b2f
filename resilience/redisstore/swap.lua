-- Replaces what there is at KEYS[1], "version value", if its version is ARGV[1]:
-- ARGV[2] is the value, ARGV[3] how long to keep it in milliseconds, 0 for ever.
-- The channel ARGV[4] is told. Answers whether it was replaced, by which version
-- or why not, and the time in microseconds.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local there = redis.call('GET', KEYS[1])
local version = '0'
if there then
	version = string.match(there, '^%d+ ') or '?'
	version = string.gsub(version, ' ', '')
end
if version ~= ARGV[1] then
	return {0, there or '', now}
end
if not there and ARGV[2] == '' then
	return {1, '0', now}
end
local written = string.format('%.0f', math.max(version + 1, now))
if ARGV[2] == '' then
	redis.call('DEL', KEYS[1])
elseif ARGV[3] == '0' then
	redis.call('SET', KEYS[1], written .. ' ' .. ARGV[2])
else
	redis.call('SET', KEYS[1], written .. ' ' .. ARGV[2], 'PX', ARGV[3])
end
redis.call('PUBLISH', ARGV[4], written .. ' ' .. #KEYS[1] .. ' ' .. KEYS[1] .. ARGV[2])
return {1, written, now}
