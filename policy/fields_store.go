package policy

import (
	"fmt"
	"net"
	"net/netip"
	"time"
)

// The fields of `store`.

// Bounds of a store.
const (
	minStoreMemory  = 1 << 20
	maxStoreMemory  = 1 << 40
	maxStoreTimeout = time.Second
	maxStoreName    = 256 // characters of a user's name
	maxStorePrefix  = 64  // characters
)

func storeFields() object[rawStore] {
	return object[rawStore]{
		typ: "a store, such as {memory: {max: 256MiB}}",
		fields: []field[rawStore]{
			mapped(memoryFields(), func(s *rawStore) *part[rawMemory] { return &s.memory }, doc{
				key: "memory", def: "unless there is `redis`",
				meaning: "Answers live in the memory of this process. They end with it, and other replicas do not see them. Excludes `redis`."}),
			mapped(redisFields(), func(s *rawStore) *part[rawRedis] { return &s.redis }, doc{
				key: "redis", meaning: "Answers live in a Redis that all replicas share. Needs `secret_file`. Excludes `memory`."}),
			value(fileLeaf(), func(s *rawStore) *optional[string] { return &s.secret }, doc{
				key: "secret_file", def: "a random secret at each start",
				meaning: "A file with the secret of the HMAC that makes keys of callers' credentials, the same for all replicas. Read by `brownout serve`."}),
		},
	}
}

func memoryFields() object[rawMemory] {
	return object[rawMemory]{
		typ: "a mapping such as {max: 256MiB}",
		fields: []field[rawMemory]{
			value(sizeLeaf(minStoreMemory, maxStoreMemory), func(m *rawMemory) *optional[int64] { return &m.max }, doc{
				key: "max", def: size(Defaults().Store.Memory),
				meaning: "How many bytes of answers are kept. The one that was not used for longest goes first."}),
		},
	}
}

func redisFields() object[rawRedis] {
	def := DefaultRedis()
	return object[rawRedis]{
		typ: "a mapping such as {address: redis.internal:6379}",
		fields: []field[rawRedis]{
			value(addressLeaf(), func(r *rawRedis) *optional[string] { return &r.address }, doc{
				key: "address", required: true, meaning: "Where the server listens."}),
			value(markLeaf("a user's name", maxStoreName), func(r *rawRedis) *optional[string] { return &r.username }, doc{
				key: "username", meaning: "The user to log in as. Needs `password_file`."}),
			value(fileLeaf(), func(r *rawRedis) *optional[string] { return &r.password }, doc{
				key: "password_file", meaning: "A file with the password. Read by `brownout serve`."}),
			value(boolLeaf(), func(r *rawRedis) *optional[bool] { return &r.tls }, doc{
				key: "tls", def: fmt.Sprint(def.TLS), meaning: "Whether the connection is encrypted and the server's certificate verified."}),
			value(markLeaf("a prefix", maxStorePrefix), func(r *rawRedis) *optional[string] { return &r.prefix }, doc{
				key: "prefix", def: def.Prefix, meaning: "What every key begins with."}),
			value(durationLeaf(time.Millisecond, maxStoreTimeout), func(r *rawRedis) *optional[time.Duration] { return &r.timeout }, doc{
				key: "timeout", def: short(def.Timeout),
				meaning: "How long a request waits for the store before it goes on without, which is counted."}),
		},
	}
}

// store compiles `store`.
func (c *compiler) store() Store {
	raw := c.file.store
	s := Store{Memory: raw.v.memory.v.max.or(Defaults().Store.Memory), SecretFile: raw.v.secret.or("")}
	redis := raw.v.redis
	if redis.set {
		def := DefaultRedis()
		s.Redis = &Redis{
			Address:      redis.v.address.or(def.Address),
			Username:     redis.v.username.or(def.Username),
			PasswordFile: redis.v.password.or(def.PasswordFile),
			TLS:          redis.v.tls.or(def.TLS),
			Prefix:       redis.v.prefix.or(def.Prefix),
			Timeout:      redis.v.timeout.or(def.Timeout),
		}
		c.redis(redis)
	}
	if raw.set && !c.kept() {
		c.warnAt(raw.at, "no route keeps answers in the store", "give one cache or idempotency, or remove it")
	}
	return s
}

// redis checks what a Redis store needs beside itself.
func (c *compiler) redis(redis part[rawRedis]) {
	store, r := c.file.store.v, redis.v
	if store.memory.set {
		c.errorAt(redis.at, "a store is either memory or redis", "remove one of the two")
	}
	if !store.secret.set {
		c.errorAt(redis.at, "redis needs store.secret_file", "with a random secret a replica would find neither another's answers nor its own after a restart")
	}
	if r.username.set && !r.password.set {
		c.errorAt(r.username.at, "username needs password_file", "add it, or remove username")
	}
	if r.address.ok && !r.tls.set && !isLoopback(r.address.v) {
		c.warnAt(r.address.at, "answers travel to "+quote(r.address.v)+" in clear", "set tls: true, or tls: false to say that this is meant")
	}
}

// kept reports whether some route keeps answers.
func (c *compiler) kept() bool {
	for _, r := range c.file.routes {
		if r.cache.set || r.idempotency.set {
			return true
		}
	}
	return len(c.file.routes) == 0 // then something else is wrong
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.IsLoopback())
}
