// Package admin serves what operators and probes ask for over HTTP: the public face (/metrics, /healthz, /readyz) and
// the private one (/debug/state, /debug/reset, /debug/pprof), which belongs on a loopback address.
package admin

import (
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Ready is the readiness of the process; the zero value is not ready. Safe for concurrent use.
type Ready struct{ on atomic.Bool }

// Set changes the readiness.
func (r *Ready) Set(on bool) { r.on.Store(on) }

// Public serves /metrics, /healthz (200 while the process runs) and /readyz (503 before start and while draining).
func Public(g prometheus.Gatherer, ready *Ready) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready.on.Load() {
			say(w, http.StatusServiceUnavailable, "not ready")
			return
		}
		say(w, http.StatusOK, "ready")
	})
	return mux
}

// Private serves /debug/state (what state returns, as JSON), POST /debug/reset (calls reset: maxima start afresh) and
// /debug/pprof.
func Private(state func() any, reset func()) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/state", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("content-type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(state()) // the only failure is a caller that has left
	})
	mux.HandleFunc("POST /debug/reset", func(w http.ResponseWriter, _ *http.Request) {
		reset()
		say(w, http.StatusOK, "maxima reset")
	})
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("content-type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // a caller that has left needs no answer
}
