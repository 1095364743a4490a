package seal

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"
)

// BenchmarkFrame is one event of 180 bytes on its way through the seal, and without it: the time from the upstream's write
// to the client's read, its 99th percentile, and the CPU of the whole process per frame, which includes both ends. What the
// seal adds is the difference.
func BenchmarkFrame(b *testing.B) {
	for _, c := range []struct {
		name    string
		sealed  bool
		streams int
	}{{"direct", false, 1}, {"sealed", true, 1}, {"direct-50-streams", false, 50}, {"sealed-50-streams", true, 50}} {
		b.Run(c.name, func(b *testing.B) { benchFrames(b, c.sealed, c.streams) })
	}
}

func benchFrames(b *testing.B, throughSeal bool, streams int) {
	frame := fmt.Appendf(nil, "data: %0172d\n\n", 7)
	next := make(chan struct{})
	s := start(b, everyone, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		flush(w)
		for {
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
			if _, err := w.Write(frame); err != nil {
				return
			}
			flush(w)
		}
	})
	c := s.client
	if !throughSeal {
		c = client(b, s.upstream.Addr())
	}
	ctx, leave := context.WithCancel(b.Context())
	defer leave()
	arrived := make(chan error, streams)
	for range streams {
		res, err := c.Do(request(b, ctx))
		if err != nil {
			b.Fatal(err)
		}
		defer res.Body.Close()
		go func() {
			buf := make([]byte, len(frame))
			for {
				_, err := io.ReadFull(res.Body, buf)
				arrived <- err
				if err != nil {
					return
				}
			}
		}()
	}
	var took []time.Duration
	before := processCPU(b)
	b.ReportAllocs()
	for b.Loop() {
		at := time.Now()
		for range streams {
			next <- struct{}{}
		}
		for range streams {
			if err := <-arrived; err != nil {
				b.Fatal(err)
			}
		}
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	frames := float64(len(took) * streams)
	b.ReportMetric(float64(processCPU(b)-before)/frames, "cpu-ns/frame")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us/round")
}

// processCPU is the CPU time the process has used, in nanoseconds.
func processCPU(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
