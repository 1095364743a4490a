package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/envoy-brownout/brownout/internal/replay"
)

const (
	workers  = 32   // operations at the server at a time
	maxJobs  = 1024 // operations waiting for a worker
	maxBytes = 64 << 20
)

// job is one operation. Its caller, if it has one that waits, is answered once: by the worker, or by the timer.
type job struct {
	op   string
	size int64                           // bytes it holds while it waits
	do   func(ctx context.Context) error // talks to the server; on a worker
	// done answers the caller; what do found may be read only when err is nil. nil: nobody waits.
	done func(err error)
	// late is called in place of done when the caller has been answered already. nil: nothing to do.
	late     func(err error)
	answered atomic.Bool
	timer    *time.Timer
}

// queue is where operations wait for a worker.
type queue struct {
	jobs    chan *job
	pending sync.WaitGroup // jobs accepted and not over, and timers that are not over

	mu     sync.Mutex // guards the fields below and the closing of jobs; sends on jobs do not block
	bytes  int64      // of the jobs that are not over
	closed bool
}

// put accepts a job, or says why not. The timer of one whose caller waits runs from now; expired is its end.
func (q *queue) put(j *job, timeout time.Duration, expired func()) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return replay.ErrDown
	case len(q.jobs) == cap(q.jobs), q.bytes+j.size > maxBytes:
		return replay.ErrSlow
	}
	q.bytes += j.size
	q.pending.Add(1)
	if j.done != nil {
		q.pending.Add(1)
		j.timer = time.AfterFunc(timeout, expired)
	}
	q.jobs <- j // there is room: only put sends, and it holds the lock
	return nil
}

// over ends a job that put has accepted.
func (q *queue) over(j *job) {
	q.mu.Lock()
	q.bytes -= j.size
	q.mu.Unlock()
	q.pending.Done()
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	close(q.jobs)
}

// start puts a job into the queue. One whose caller waits is answered within the store's timeout; one that is not
// accepted is answered now.
func (s *Store) start(j *job) {
	if s.health.down.Load() {
		s.refuse(j, replay.ErrDown)
		return
	}
	if err := s.queue.put(j, s.opts.Timeout, func() { s.expire(j) }); err != nil {
		s.refuse(j, err)
	}
}

// expire answers a job that took too long.
func (s *Store) expire(j *job) {
	defer s.queue.pending.Done()
	if j.answered.CompareAndSwap(false, true) {
		s.health.failedInARow(j.op, replay.ErrSlow)
		j.done(replay.ErrSlow)
	}
}

// refuse answers a job that was never begun, unless its timer has.
func (s *Store) refuse(j *job, err error) {
	if !s.answer(j) {
		return
	}
	s.health.failed(j.op, err)
	if j.done != nil {
		j.done(err)
	}
}

// answer says whether the job's caller is still to be answered, and takes that over from the timer.
func (s *Store) answer(j *job) bool {
	if !j.answered.CompareAndSwap(false, true) {
		return false
	}
	if j.timer != nil && j.timer.Stop() {
		s.queue.pending.Done()
	}
	return true
}

// work runs jobs until the queue is closed and empty.
func (s *Store) work(ctx context.Context) {
	for j := range s.queue.jobs {
		s.run(ctx, j)
		s.queue.over(j)
	}
}

func (s *Store) run(ctx context.Context, j *job) {
	if j.answered.Load() {
		return // its time was over before its turn came, and nothing was begun
	}
	if s.health.down.Load() {
		s.refuse(j, replay.ErrDown)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	err := again(func() error { return j.do(ctx) })
	if !s.answer(j) {
		if j.late != nil {
			j.late(err)
		}
		return
	}
	if err != nil {
		s.health.failedInARow(j.op, err)
		err = forCaller(err)
	} else {
		s.health.worked()
	}
	if j.done != nil {
		j.done(err)
	}
}

// attempts is how often an operation is sent when its connection turns out to be broken: a server that was restarted has
// broken them all, and that shows only when they are used.
const attempts = connections + 1

// again repeats what failed for its connection. Every operation may be sent twice.
func again(do func() error) error {
	var err error
	for range attempts {
		if err = do(); err == nil || !brokenConnection(err) {
			break
		}
	}
	return err
}

func brokenConnection(err error) bool {
	_, fromServer := rueidis.IsRedisErr(err)
	return !fromServer && !errors.Is(err, errNoClient) && !errors.Is(err, errUnreadable) &&
		!errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

// errUncertain marks the errors of operations that were begun: the server may have done what was asked.
var errUncertain = errors.New("begun")

// forCaller makes an error of the client one that callers of a replay.Store know.
func forCaller(err error) error {
	known := replay.ErrDown
	if errors.Is(err, context.DeadlineExceeded) {
		known = replay.ErrSlow
	}
	return fmt.Errorf("%w (%w): %w", known, errUncertain, err)
}
