-- Answers what there is at KEYS[1], and the time in microseconds.
local time = redis.call('TIME')
return {redis.call('GET', KEYS[1]) or '', time[1] * 1000000 + time[2]}
