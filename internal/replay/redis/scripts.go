package redis

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// The scripts run whole in the server, and may be sent again when it is not known whether they ran. pcall and the tests of type take a value of another type, which is none of ours, for
// no value.

// claimScript takes a key unless it is claimed or answered. Asked again by the same owner, it says the same again. A record
// is returned whole, so that the caller can tell whether it is one. ARGV: our claim, its lease in milliseconds, the magic
// of a record.
const claimScript = `
local v = redis.pcall('GET', KEYS[1])
if v == ARGV[1] then return {'taken'} end
if type(v) == 'string' then
  local kind, same = string.sub(v, 1, 4), string.sub(v, 5, 36) == string.sub(ARGV[1], 5, 36)
  if kind == ARGV[3] then return {same and 'done' or 'mismatch', v} end
  if kind == string.sub(ARGV[1], 1, 4) and #v == #ARGV[1] then return {same and 'busy' or 'mismatch'} end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {'taken'}`

// settleScript puts a record in the place of our claim, or of nothing: a claim that lapsed while nobody took the key. ARGV:
// our claim, the record, how long it is kept in milliseconds.
const settleScript = `
local v = redis.pcall('GET', KEYS[1])
if v == ARGV[1] or v == false then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return 1
end
return 0`

// dropScript deletes a value, if it is still ARGV[1].
const dropScript = `
if redis.pcall('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`

// renewScript gives our claim, ARGV[1], a new lease of ARGV[2] milliseconds.
const renewScript = `
if redis.pcall('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0`

// eval runs a script over one key. The text is sent every time: it is short, and a server that was restarted knows none.
func (s *Store) eval(ctx context.Context, script, key string, args ...string) (rueidis.RedisResult, error) {
	client, err := s.link.get()
	if err != nil {
		return rueidis.RedisResult{}, err
	}
	r := client.Do(ctx, evalCommand(client, script, key, args...))
	return r, r.Error()
}

func evalCommand(client rueidis.Client, script, key string, args ...string) rueidis.Completed {
	return client.B().Eval().Script(script).Numkeys(1).Key(key).Arg(args...).Build()
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
