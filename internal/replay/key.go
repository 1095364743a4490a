package replay

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/envoy-brownout/brownout/internal/outcome"
)

// Key names a request, a tenant or a payload to a store. It is an HMAC-SHA-256 and is never printed: Format and
// MarshalText hide it.
type Key [sha256.Size]byte

// hidden is what a key prints as.
const hidden = "key(hidden)"

// Format prints that it is a key, whatever the verb.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// String is like Format.
func (k Key) String() string { return hidden }

// MarshalText is like Format.
func (k Key) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Tier is the key of the entry of one tier, derived from the key that Keys.Cache gave.
func (k Key) Tier(name string) Key {
	m := newMAC(k[:], domainTier)
	m.text(name)
	return m.sum()
}

// What a key is for comes first in its HMAC, so that keys of different kinds never meet.
const (
	domainTenant      = "brownout/1 tenant"
	domainCache       = "brownout/1 cache"
	domainTier        = "brownout/1 tier"
	domainIdempotency = "brownout/1 idempotency"
	domainFingerprint = "brownout/1 fingerprint"
)

// Keys makes keys under one secret. Replicas that share a store share the secret. Make one with NewKeys.
type Keys struct{ secret []byte }

// NewKeys makes keys under secret, which is copied. An empty secret stands for a random one: keys of this process alone.
func NewKeys(secret []byte) *Keys {
	k := &Keys{secret: append([]byte(nil), secret...)}
	if len(secret) == 0 {
		k.secret = make([]byte, sha256.Size)
		_, _ = rand.Read(k.secret) // crypto/rand.Read never returns an error
	}
	return k
}

// Format prints nothing of the secret.
func (k Keys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "keys(hidden)") }

// Subject is a request as far as keys need it. It holds credentials, so it prints as its route alone.
type Subject struct {
	Route   string
	Method  string
	Path    string           // with its query
	Headers []outcome.Header // names in lower case; a name may be repeated
}

// Format prints the route and nothing of the request.
func (s Subject) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "request(route %s)", s.Route) }

// MarshalJSON is like Format.
func (s Subject) MarshalJSON() ([]byte, error) { return json.Marshal(fmt.Sprint(s)) }

// values are the values of one header, in order.
func (s Subject) values(name string) []string {
	var out []string
	for _, h := range s.Headers {
		if h.Name == name {
			out = append(out, h.Value)
		}
	}
	return out
}

// Tenant is whom the answer of a request belongs to: all its credentials, and the values of the partition headers, whose
// names are lower case. anonymous: the request has no credential; partition headers are none.
func (k *Keys) Tenant(s Subject, partition []string) (t Key, anonymous bool) {
	m := k.mac(domainTenant)
	anonymous = true
	for _, name := range credentialHeaders {
		vs := withoutBlank(s.values(name))
		m.list(vs)
		anonymous = anonymous && len(vs) == 0
	}
	_, secrets := splitCredentials(s.Path)
	m.list(secrets)
	m.number(len(partition))
	for _, name := range partition {
		m.text(name)
		m.list(s.values(name))
	}
	return m.sum(), anonymous && len(secrets) == 0
}

// withoutBlank leaves out values that are empty or white space: they identify nobody.
func withoutBlank(vs []string) []string {
	var out []string
	for _, v := range vs {
		if strings.TrimSpace(v) != "" {
			out = append(out, v)
		}
	}
	return out
}

// CacheRules are a route's rules for cache keys.
type CacheRules struct {
	Schema    string   // of the prompts; another one is another key
	Partition []string // headers, in lower case, that split the key beside the credentials
	Anonymous bool     // requests without credentials share answers
}

// Why a request has no cache key.
const (
	WhyMethod    = "method"    // neither GET nor POST
	WhyMultipart = "multipart" // its body is no one document
	WhyNoStore   = "no_store"  // it says cache-control: no-store
	WhyAnonymous = "anonymous" // no credential, and the route does not share such answers
)

// Cache is the key of a request's answer; Key.Tier makes the key of an entry of it. canonical is the normalized body. why
// is not empty when the answer must be neither kept nor taken from the store: one of the reasons above.
func (k *Keys) Cache(s Subject, canonical []byte, r CacheRules) (base Key, why string) {
	media := baseMediaType(s.values("content-type"))
	if s.Method != "GET" && s.Method != "POST" {
		return Key{}, WhyMethod
	}
	if strings.HasPrefix(media, "multipart/") {
		return Key{}, WhyMultipart
	}
	if _, ok := CacheControl(s.Headers, "no-store"); ok {
		return Key{}, WhyNoStore
	}
	tenant, anonymous := k.Tenant(s, r.Partition)
	if anonymous && !r.Anonymous {
		return Key{}, WhyAnonymous
	}
	m := k.mac(domainCache)
	m.bytes(tenant[:])
	m.request(s)
	m.text(r.Schema)
	m.text(media)
	for _, name := range keyHeaders {
		m.list(s.values(name))
	}
	m.bytes(canonical)
	return m.sum(), ""
}

// Idempotency is the key of a request that carries an idempotency key, as ParseIdempotencyKey gave it. The same value of
// another tenant, route, method or path is another key. partition adds to the tenant.
func (k *Keys) Idempotency(s Subject, value string, partition ...string) Key {
	tenant, _ := k.Tenant(s, partition)
	m := k.mac(domainIdempotency)
	m.bytes(tenant[:])
	m.request(s)
	m.text(value)
	return m.sum()
}

// Fingerprint tells one payload of an idempotency key from another.
func (k *Keys) Fingerprint(canonical []byte) Key {
	m := k.mac(domainFingerprint)
	m.bytes(canonical)
	return m.sum()
}

// mac is an HMAC over parts that each carry their length. Small parts are gathered, so that the hash is called seldom.
type mac struct {
	h   hash.Hash
	buf []byte
}

const macBuffer = 512

func newMAC(secret []byte, domain string) *mac {
	m := &mac{h: hmac.New(sha256.New, secret), buf: make([]byte, 0, macBuffer)}
	m.text(domain)
	return m
}

func (k *Keys) mac(domain string) *mac { return newMAC(k.secret, domain) }

func (m *mac) number(n int) { m.buf = binary.BigEndian.AppendUint64(m.buf, uint64(n)) }

func (m *mac) text(s string) {
	m.number(len(s))
	m.buf = append(m.buf, s...)
}

func (m *mac) bytes(b []byte) {
	m.number(len(b))
	m.flush()
	_, _ = m.h.Write(b) // a hash returns no error
}

func (m *mac) list(vs []string) {
	m.number(len(vs))
	for _, v := range vs {
		m.text(v)
	}
}

func (m *mac) flush() {
	_, _ = m.h.Write(m.buf) // a hash returns no error
	m.buf = m.buf[:0]
}

// request adds what is asked of whom: route, method, and the path without its credentials, which are the tenant's.
func (m *mac) request(s Subject) {
	path, _ := splitCredentials(s.Path)
	m.text(s.Route)
	m.text(s.Method)
	m.text(path)
}

func (m *mac) sum() (k Key) {
	m.flush()
	m.h.Sum(k[:0])
	return k
}
