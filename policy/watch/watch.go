package watch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/envoy-brownout/brownout/policy"
)

// Defaults of Options.
const (
	DefaultDebounce = 100 * time.Millisecond
	DefaultPoll     = 30 * time.Second
)

// maxDebounces bounds, in multiples of the debounce time, how long a burst that does not end can hold off a look
// at the file.
const maxDebounces = 10

// maxRead bounds what Read returns: one byte above the largest policy file, so that who parses it sees that it
// is too large.
const maxRead = policy.MaxBytes + 1

// Options says what to watch.
type Options struct {
	// Path is the file. It may be a symbolic link and need not exist yet. Required.
	Path string
	// Loaded is the content the caller has in force, as Read returned it; the same content is not applied again.
	// With nil the first content found is applied.
	Loaded []byte
	// Debounce is how long the directory must be quiet before the file is read. 0 means DefaultDebounce.
	Debounce time.Duration
	// Poll is how often the file is looked at without an event. 0 means DefaultPoll.
	Poll time.Duration
	// Failed, if set, is told of each change that did not come into force: the file cannot be read, or apply
	// returned an error. A failure that lasts is told once.
	Failed func(error)
	// Logger receives one line per change, at debug, and one per failure; nil discards them.
	Logger *slog.Logger
}

// Watcher hands the content of one file over whenever it changes. Use New; call Run once.
type Watcher struct {
	o       Options
	apply   func(src []byte) error
	seen    bool // sum is that of the content seen last, in force or refused
	sum     [sha256.Size]byte
	failing string // text of the read failure that lasts; empty if the last read succeeded
}

// New returns a watcher that calls apply with the whole new content each time it differs from the content seen
// last. A nil error from apply means the content is in force; an error is logged and handed to Options.Failed,
// and the same content is not offered again. apply may keep src.
func New(o Options, apply func(src []byte) error) (*Watcher, error) {
	if o.Path == "" {
		return nil, errors.New("watch policy: no path given")
	}
	if o.Debounce < 0 || o.Poll < 0 {
		return nil, fmt.Errorf("watch policy %s: debounce %s and poll %s must not be negative", o.Path, o.Debounce, o.Poll)
	}
	if o.Debounce == 0 {
		o.Debounce = DefaultDebounce
	}
	if o.Poll == 0 {
		o.Poll = DefaultPoll
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Watcher{o: o, apply: apply}
	if o.Loaded != nil {
		w.seen, w.sum = true, sha256.Sum256(o.Loaded)
	}
	return w, nil
}

// Read returns the content of the file at path, at most one byte more than a policy may have. It refuses what is
// no regular file, since reading a pipe may never end. Callers use it for the first load.
func Read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read policy: %s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, maxRead))
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	return src, nil
}

// Run watches until ctx ends, then returns nil. The first look at the file is one debounce time after the
// directories are watched, so that no change since the caller's own load is missed. Where the system grants no
// watch, Run logs a warning and only polls.
func (w *Watcher) Run(ctx context.Context) error {
	dirs, events, errs := w.open()
	defer dirs.close()
	dirs.sync(w.o.Path)

	poll := time.NewTicker(w.o.Poll)
	defer poll.Stop()
	quiet := newBurst(w.o.Debounce)
	defer quiet.timer.Stop()
	quiet.note(time.Now())
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-events:
			if dirs.concerns(e.Name) {
				quiet.note(time.Now())
			}
		case err := <-errs:
			// Events may have been lost: look, as if there had been one.
			w.o.Logger.Warn("policy watch lost events", "path", w.o.Path, "error", err)
			quiet.note(time.Now())
		case <-quiet.timer.C:
			quiet.end()
			dirs.sync(w.o.Path)
			w.look()
		case <-poll.C:
			if !quiet.on {
				dirs.sync(w.o.Path)
				w.look()
			}
		}
	}
}

// open starts the notifier. Without one the channels are nil and never ready.
func (w *Watcher) open() (*dirs, <-chan fsnotify.Event, <-chan error) {
	n, err := fsnotify.NewWatcher()
	if err != nil {
		w.o.Logger.Warn("policy watch gets no file events, only polls", "path", w.o.Path, "poll", w.o.Poll, "error", err)
		return newDirs(nil, w.o.Logger), nil, nil
	}
	return newDirs(n, w.o.Logger), n.Events, n.Errors
}

// look reads the file and applies content that was not seen before.
func (w *Watcher) look() {
	src, err := Read(w.o.Path)
	if err != nil {
		if text := err.Error(); text != w.failing {
			w.failing = text
			w.fail("policy file cannot be read; the policy in force stays", err)
		}
		return
	}
	back := w.failing != ""
	w.failing = ""
	sum := sha256.Sum256(src)
	if w.seen && sum == w.sum {
		if back {
			w.o.Logger.Info("policy file is back, unchanged", "path", w.o.Path)
		}
		return
	}
	w.seen, w.sum = true, sum
	if err := w.apply(src); err != nil {
		w.fail("policy file refused; the policy in force stays", err)
		return
	}
	w.o.Logger.Debug("policy file applied", "path", w.o.Path, "bytes", len(src))
}

func (w *Watcher) fail(message string, err error) {
	w.o.Logger.Error(message, "path", w.o.Path, "error", err)
	if w.o.Failed != nil {
		w.o.Failed(err)
	}
}

// burst is the wait for the end of a row of events.
type burst struct {
	timer *time.Timer
	quiet time.Duration // the timer fires when this has passed since the last event
	on    bool
	until time.Time // and at this time even if events go on
}

func newBurst(quiet time.Duration) *burst {
	timer := time.NewTimer(quiet)
	timer.Stop()
	return &burst{timer: timer, quiet: quiet}
}

// note is called at each event.
func (b *burst) note(now time.Time) {
	if !b.on {
		b.on, b.until = true, now.Add(maxDebounces*b.quiet)
	}
	b.timer.Reset(min(b.quiet, b.until.Sub(now)))
}

// end is called when the timer has fired.
func (b *burst) end() { b.on = false }
