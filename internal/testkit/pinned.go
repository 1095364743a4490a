package testkit

import (
	"os/exec"
	"runtime"
	"sync"
)

// starter starts children from one thread that never ends. Linux delivers a parent-death signal when the thread
// that forked ends, and the runtime ends threads as it likes.
var starter = sync.OnceValue(func() chan<- func() {
	jobs := make(chan func())
	go runPinned(jobs)
	return jobs
})

// runPinned runs jobs on a thread of their own for the life of the test binary.
func runPinned(jobs <-chan func()) {
	runtime.LockOSThread()
	for job := range jobs {
		job()
	}
}

// startPinned is cmd.Start on that thread.
func startPinned(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	starter() <- func() { result <- cmd.Start() }
	return <-result
}
