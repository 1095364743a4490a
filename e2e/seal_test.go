package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-brownout/brownout/envoy"
	"github.com/envoy-brownout/brownout/internal/seal"
	"github.com/envoy-brownout/brownout/internal/testkit"
	"github.com/envoy-brownout/brownout/policy"
)

// These tests run the seal in this process between a real Envoy's listeners, without the plugin: a request chooses the
// sealed route by the header the plugin would set, on a front listener that does not strip it.

// hop is a seal and a real Envoy around it.
type hop struct {
	*seal.Seal
	envoy *testkit.Envoy
	inner string       // path of the inner listener's socket
	live  atomic.Value // func(id string) bool
	c     *http.Client // straight to the seal
}

// hopOptions say what to start.
type hopOptions struct {
	scheme   envoy.Scheme
	upstream string // HOST:PORT
	noSeal   bool   // nobody listens where the seal should
}

// withoutStripping takes out the part of the configuration that keeps callers from choosing the sealed route.
func withoutStripping(t *testing.T, config []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	indent := -1 // of the part, while in it
	for line := range bytes.Lines(config) {
		depth := len(line) - len(bytes.TrimLeft(line, " "))
		item := bytes.HasPrefix(bytes.TrimLeft(line, " "), []byte("- "))
		switch {
		case bytes.Contains(line, []byte("early_header_mutation_extensions:")):
			indent = depth
			continue
		case indent >= 0 && (depth > indent || depth == indent && item):
			continue
		}
		indent = -1
		out.Write(line)
	}
	if out.Len() == len(config) {
		t.Fatal("nothing was taken out of the configuration")
	}
	return out.Bytes()
}

func startHop(t *testing.T, o hopOptions) *hop {
	t.Helper()
	h, dir := &hop{}, testkit.SocketDir(t)
	h.inner = filepath.Join(dir, "inner.sock")
	h.live.Store(func(id string) bool { return id == "7" })
	h.startSeal(t, filepath.Join(dir, "seal.sock"), o.noSeal)
	snap, problems := policy.Parse("policy.yaml", []byte(strings.Replace(chatPolicy, "concurrency: 4", "concurrency: 400", 1)))
	if snap == nil {
		t.Fatal(problems)
	}
	host, port := hostPort(t, "http://"+o.upstream)
	opts := envoy.Options{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Processor: "unix:" + dir + "/nobody",
		Seal: "unix:" + filepath.Join(dir, "seal.sock"), Inner: "unix:" + h.inner,
		Upstreams: []envoy.Upstream{{Tier: "full", Scheme: o.scheme, Host: host, Port: port}}}
	config, err := envoy.Bootstrap(snap, opts)
	if err != nil {
		t.Fatal(err)
	}
	h.envoy = testkit.StartEnvoy(t, testkit.EnvoyConfig{Bootstrap: withoutStripping(t, config)})
	return h
}

func (h *hop) startSeal(t *testing.T, path string, nobody bool) {
	t.Helper()
	h.Seal = seal.New(seal.Options{
		Dial: func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "unix", h.inner) },
		Live: func(id string) bool { return h.live.Load().(func(string) bool)(id) },
	})
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p, DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	h.c = &http.Client{Transport: tr}
	if nobody {
		return
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- h.Serve(l) }()
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second) // t.Context has ended
		defer cancel()
		_ = h.Shutdown(ctx) // what the test left open is cut
		if err := <-done; err != nil {
			t.Errorf("seal: %v", err)
		}
	})
}

// ends waits until so many requests ended in one way.
func (h *hop) ends(t *testing.T, end seal.End, n int) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, func() bool { return h.Stats().Ended[end] == n },
		fmt.Sprintf("not %d requests that ended %s: %+v", n, end, h.Stats()))
}

// request is a sealed one of id 7.
func sealedRequest(t *testing.T, url string, pairs ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	pairs = append([]string{"x-tier", "full", "x-brownout-seal", "on", "x-brownout-id", "7"}, pairs...)
	for i := 0; i < len(pairs); i += 2 {
		r.Header.Set(pairs[i], pairs[i+1]) // later ones win
	}
	return r
}

// trailed is an answer with its trailer.
type trailed struct {
	answer
	trailer http.Header
}

func doTrailed(c *http.Client, r *http.Request) trailed {
	start := time.Now()
	resp, err := c.Do(r)
	if err != nil {
		return trailed{answer: answer{err: err}}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return trailed{answer{resp.StatusCode, resp.Header, string(body), err, time.Since(start)}, resp.Trailer}
}

const sealURL = "http://model.test" + chatPath

// eachUpstream runs a test with upstreams that speak HTTP/1.1 and HTTP/2.
func eachUpstream(t *testing.T, test func(t *testing.T, scheme envoy.Scheme)) {
	t.Run("H1", func(t *testing.T) { test(t, envoy.SchemeHTTP) })
	t.Run("H2", func(t *testing.T) { test(t, envoy.SchemeH2C) })
}

func address(u *scripted) string { return strings.TrimPrefix(u.URL, "http://") }

func TestACutThroughTheSealIsAnEndWithATrailer(t *testing.T) {
	eachUpstream(t, func(t *testing.T, scheme envoy.Scheme) {
		u := startScripted(t)
		h := startHop(t, hopOptions{scheme: scheme, upstream: address(u)})
		n := 0
		for _, contentType := range []string{"text/event-stream", "application/x-ndjson", "application/json"} {
			for _, e := range []ending{cut, short, destroy} {
				k, v := u.add(contentType+" "+e.String(), script{header: map[string]string{"content-type": contentType}, chunks: []string{partial, partial}, end: e})
				for via, url := range map[string]string{"seal": sealURL, "front": h.envoy.URL(chatPath)} {
					c := h.c
					if via == "front" {
						c = newClient(t, true)
					}
					n++
					a := doTrailed(c, sealedRequest(t, url, k, v))
					if a.status != 200 || a.err != nil || a.body != partial+partial || a.trailer.Get("x-brownout-cut") != "1" || a.header.Get("content-length") != "" {
						t.Errorf("%s, %s, through the %s: %v, trailer %v", contentType, e, via, a, a.trailer)
					}
					if a.took > 500*time.Millisecond {
						t.Errorf("%s, %s, through the %s: the cut took %s to arrive", contentType, e, via, a.took)
					}
				}
			}
		}
		h.ends(t, seal.EndRepaired, n)
	})
}

func TestACutNobodyCanMendStaysACutThroughTheSeal(t *testing.T) {
	eachUpstream(t, func(t *testing.T, scheme envoy.Scheme) {
		u := startScripted(t)
		h := startHop(t, hopOptions{scheme: scheme, upstream: address(u)})
		n := 0
		for _, e := range []ending{cut, short, destroy} {
			for name, c := range map[string]struct {
				header map[string]string
				id     string
			}{
				"opaque":                    {map[string]string{"content-type": "application/octet-stream"}, "7"},
				"encoded":                   {map[string]string{"content-type": "text/event-stream", "content-encoding": "gzip"}, "7"},
				"another process's session": {nil, "8"},
			} {
				k, v := u.add(name+e.String(), script{header: c.header, chunks: []string{partial}, end: e})
				n++
				if a := doTrailed(h.c, sealedRequest(t, sealURL, k, v, "x-brownout-id", c.id)); a.err == nil {
					t.Errorf("%s, %s: a clean end: %v, trailer %v", name, e, a, a.trailer)
				}
			}
		}
		h.ends(t, seal.EndCut, n)
	})
}

func TestWholeAnswersPassTheSealWithTheirTrailers(t *testing.T) {
	eachUpstream(t, func(t *testing.T, scheme envoy.Scheme) {
		u := startScripted(t)
		h := startHop(t, hopOptions{scheme: scheme, upstream: address(u)})
		k, v := u.add("whole", script{chunks: []string{partial, partial}})
		if a := doTrailed(h.c, sealedRequest(t, sealURL, k, v)); a.body != partial+partial || a.err != nil || len(a.trailer) != 0 {
			t.Errorf("whole: %v, trailer %v", a, a.trailer)
		}
		k, v = u.add("trailers", script{chunks: []string{partial}, end: trailers})
		a := doTrailed(h.c, sealedRequest(t, sealURL, k, v))
		// Envoy passes trailers of HTTP/2 on; those of HTTP/1.1 it drops by default.
		want := map[envoy.Scheme]string{envoy.SchemeHTTP: "", envoy.SchemeH2C: "yes"}[scheme]
		if a.body != partial || a.err != nil || a.trailer.Get("x-upstream-trailer") != want {
			t.Errorf("trailers: %v, trailer %v, want %q", a, a.trailer, want)
		}
		h.ends(t, seal.EndWhole, 2)
	})
}

// closer is an upstream that takes every connection and closes it when a request has come.
func closer(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1)) // whatever comes
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

func TestAnUnreachableUpstreamIsMarkedByTheSeal(t *testing.T) {
	eachUpstream(t, func(t *testing.T, scheme envoy.Scheme) {
		for name, upstream := range map[string]string{"nobody listens": testkit.FreeAddr(t), "closes the connection": closer(t)} {
			h := startHop(t, hopOptions{scheme: scheme, upstream: upstream})
			for _, url := range []string{sealURL, h.envoy.URL(chatPath)} {
				c := h.c
				if url != sealURL {
					c = newClient(t, false)
				}
				a := doTrailed(c, sealedRequest(t, url))
				if a.status != 503 || a.header.Get("x-brownout-seal") != "unreachable" || !strings.HasPrefix(a.header.Get("x-brownout-inner"), "upstream_reset_before_response_started") {
					t.Errorf("%s: %v, header %v", name, a, a.header)
				}
			}
			h.ends(t, seal.EndUnreachable, 2)
		}
	})
}

func TestOtherRepliesOfTheInnerEnvoyAreMarkedAsSuch(t *testing.T) {
	u := startScripted(t)
	h := startHop(t, hopOptions{upstream: address(u)})
	a := doTrailed(h.c, sealedRequest(t, sealURL, "x-tier", "nobody's"))
	if a.status != 404 || a.header.Get("x-brownout-seal") != "" || a.header.Get("x-brownout-inner") != "route_not_found" {
		t.Errorf("no such tier: %v, header %v", a, a.header)
	}
}

func TestAFrontListenerWithoutASealAnswersAsItself(t *testing.T) {
	u := startScripted(t)
	h := startHop(t, hopOptions{upstream: address(u), noSeal: true})
	a := doTrailed(newClient(t, false), sealedRequest(t, h.envoy.URL(chatPath)))
	if a.status != 503 || a.header.Get("x-brownout-seal") != "" || a.header.Get("x-brownout-inner") != "" {
		t.Errorf("%v, header %v", a, a.header)
	}
	k, v := u.add("plain", script{chunks: []string{partial}})
	r := sealedRequest(t, h.envoy.URL(chatPath), k, v)
	r.Header.Del("x-brownout-seal")
	if a := doTrailed(newClient(t, false), r); a.status != 200 || a.body != partial {
		t.Errorf("the plain route beside it: %v", a)
	}
}

func TestAnUpstreamCannotPlantMarksBehindTheSeal(t *testing.T) {
	eachUpstream(t, func(t *testing.T, scheme envoy.Scheme) {
		u := startScripted(t)
		h := startHop(t, hopOptions{scheme: scheme, upstream: address(u)})
		for _, status := range []int{200, 404, 503} {
			k, v := u.add(strconv.Itoa(status), script{status: status, chunks: []string{partial}, header: map[string]string{
				"x-brownout-seal": "unreachable", "x-brownout-inner": "no_healthy_upstream", "x-brownout-cut": "1"}})
			a := doTrailed(h.c, sealedRequest(t, sealURL, k, v))
			for _, name := range []string{"x-brownout-seal", "x-brownout-inner", "x-brownout-cut"} {
				if a.status != status || a.header.Get(name) != "" {
					t.Errorf("%d: %v with %s: %q", status, a, name, a.header.Get(name))
				}
			}
		}
		h.ends(t, seal.EndWhole, 3)
	})
}

func TestASealedRequestLooksLikeAPlainOneToItsUpstream(t *testing.T) {
	eachUpstream(t, func(t *testing.T, scheme envoy.Scheme) {
		u := startScripted(t)
		h := startHop(t, hopOptions{scheme: scheme, upstream: address(u)})
		for _, h2 := range []bool{false, true} {
			var seen []http.Header
			for _, sealed := range []bool{true, false} {
				name := fmt.Sprintf("h2 %v sealed %v", h2, sealed)
				k, v := u.add(name, script{chunks: []string{partial}})
				r := sealedRequest(t, h.envoy.URL(chatPath)+"?x=%7e&y", k, v, "x-request-id", "11111111-2222-3333-4444-555555555555",
					"x-forwarded-for", "192.0.2.1", "cookie", "a=1; b=2", "te", "trailers", "user-agent", "")
				if !sealed {
					r.Header.Del("x-brownout-seal")
				}
				if a := doTrailed(newClient(t, h2), r); a.status != 200 {
					t.Fatalf("%s: %v", name, a)
				}
				u.mu.Lock()
				got := maps.Clone(u.seen[name])
				u.mu.Unlock()
				for _, own := range []string{"X-Script", "X-Brownout-Id"} { // the plain route passes the id on that this test planted
					got.Del(own)
				}
				seen = append(seen, got)
			}
			if d := cmp.Diff(seen[1], seen[0]); d != "" {
				t.Errorf("h2 %v: plain and sealed differ (-plain +sealed):\n%s", h2, d)
			}
		}
	})
}

func TestLargeBodiesPassTheSealBothWays(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 5<<20/16)
	eachUpstream(t, func(t *testing.T, scheme envoy.Scheme) {
		up := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got, err := io.ReadAll(r.Body)
			if err != nil || !bytes.Equal(got, big) {
				t.Errorf("upload: %d bytes, %v", len(got), err)
			}
			w.Header().Set("Content-Type", "application/octet-stream")
			_, _ = w.Write(big) // the client counts
		})
		h := startHop(t, hopOptions{scheme: scheme, upstream: startModel(t, up)})
		for _, h2 := range []bool{false, true} {
			r := sealedRequest(t, h.envoy.URL(chatPath))
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(big)), int64(len(big))
			a := doTrailed(newClient(t, h2), r)
			if a.status != 200 || a.err != nil || sha256.Sum256([]byte(a.body)) != sha256.Sum256(big) {
				t.Errorf("h2 %v: status %d, %d bytes, %v", h2, a.status, len(a.body), a.err)
			}
		}
	})
}
