package e2e

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-brownout/brownout/envoy"
	"github.com/envoy-brownout/brownout/internal/seal"
	"github.com/envoy-brownout/brownout/internal/testkit"
)

// startModel serves h over HTTP/1.1 and HTTP/2 in clear.
func startModel(t *testing.T, h http.Handler) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	srv, done := &http.Server{Handler: h, Protocols: p}, make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close() // whatever is left
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestAClientThatStopsReadingBoundsItsUpstreamAndHoldsNobodyUp(t *testing.T) {
	eachUpstream(t, func(t *testing.T, scheme envoy.Scheme) {
		var written, cancelled atomic.Int64
		up := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("x-flood") == "" {
				_, _ = io.WriteString(w, "quick") // the client sees what is missing
				return
			}
			defer cancelled.Add(1)
			for {
				n, err := w.Write(make([]byte, 64<<10))
				if written.Add(int64(n)); err != nil {
					return
				}
			}
		})
		h := startHop(t, hopOptions{scheme: scheme, upstream: startModel(t, up)})
		const floods = 20
		c := newClient(t, true)
		c.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}
		for i := range floods {
			resp, err := c.Do(sealedRequest(t, h.envoy.URL(chatPath), "x-flood", "1", "x-brownout-id", strconv.Itoa(100+i)))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close() // nobody reads it
		}
		last, still := int64(0), 0
		testkit.Eventually(t, 10*time.Second, func() bool {
			if still++; written.Load() != last || last == 0 {
				last, still = written.Load(), 0
			}
			return still > 20
		}, "the floods never stopped")
		t.Logf("%d KiB of each answer nobody reads have left the upstream", last/floods>>10)
		// HTTP/1.1: most of it lies in the kernel, which gives each upstream's connection some megabytes.
		if last/floods > map[envoy.Scheme]int64{envoy.SchemeHTTP: 40 << 20, envoy.SchemeH2C: 2 << 20}[scheme] {
			t.Errorf("%d bytes of each answer nobody reads have left the upstream", last/floods)
		}
		for range 20 {
			if a := doTrailed(c, sealedRequest(t, h.envoy.URL(chatPath))); a.body != "quick" || a.took > time.Second {
				t.Errorf("beside the floods: %v", a)
			}
		}
		for i := range floods {
			if !h.Cancel(strconv.Itoa(100 + i)) {
				t.Errorf("flood %d had ended", i)
			}
		}
		testkit.Eventually(t, 2*time.Second, func() bool { return cancelled.Load() == floods }, "cancelled, but the upstreams work on")
	})
}

func TestHundredsOfEarlyAbortsLeaveOtherAnswersAlone(t *testing.T) {
	var waiting atomic.Int64
	stop := make(chan struct{})
	up := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("x-long") == "" {
			waiting.Add(1)
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			_, _ = io.WriteString(w, partial) // the client sees what is missing
			_ = http.NewResponseController(w).Flush()
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	h := startHop(t, hopOptions{upstream: startModel(t, up)})
	long := make(chan trailed, 1)
	go func() { long <- doTrailed(h.c, sealedRequest(t, sealURL, "x-long", "1")) }()
	const rounds, each = 15, 50
	for round := range rounds {
		ctx, abort := context.WithCancel(t.Context())
		done := make(chan struct{}, each)
		for range each {
			go func() {
				defer func() { done <- struct{}{} }()
				if resp, err := h.c.Do(sealedRequest(t, sealURL).WithContext(ctx)); err == nil {
					resp.Body.Close()
				}
			}()
		}
		testkit.Eventually(t, 10*time.Second, func() bool { return waiting.Load() == int64((round+1)*each) }, "requests that never came")
		abort()
		for range each {
			<-done
		}
	}
	h.ends(t, seal.EndClientGone, rounds*each)
	close(stop)
	if a := <-long; a.status != 200 || a.err != nil || a.trailer.Get("x-brownout-cut") != "" {
		t.Errorf("the answer beside %d aborts: status %d, %v, trailer %v", rounds*each, a.status, a.err, a.trailer)
	}
}

func TestEnvoyTakesItsInnerSocketBackAfterACrash(t *testing.T) {
	u := startScripted(t)
	k, v := u.add("whole", script{chunks: []string{partial}})
	h := startHop(t, hopOptions{upstream: address(u)})
	for range 2 {
		info, err := os.Lstat(h.inner)
		if err != nil || info.Mode() != fs.ModeSocket|0o600 {
			t.Fatalf("inner socket: %v, %v", info, err)
		}
		testkit.Eventually(t, 10*time.Second, func() bool { return doTrailed(h.c, sealedRequest(t, sealURL, k, v)).body == partial }, "no answer")
		h.envoy.Stop()
		if _, err := os.Lstat(h.inner); err != nil {
			t.Fatalf("a killed Envoy took its socket along: %v", err)
		}
		if a := doTrailed(h.c, sealedRequest(t, sealURL, k, v)); a.status != 503 || a.header.Get("x-brownout-seal") != "unreachable" {
			t.Errorf("without Envoy: %v", a)
		}
		h.envoy.Restart()
	}
}
