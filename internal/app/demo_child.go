package app

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// childGrace is how long a child may take to end by itself.
const childGrace = 5 * time.Second

// child is a process the demo started. It ends with the demo whatever happens to the demo (where the system can do
// that), and stays out of the terminal's process group, so that Ctrl-C reaches the demo alone, which stops its
// children in order.
type child struct {
	name    string
	cmd     *exec.Cmd
	logPath string
	done    chan struct{} // closed when it has ended
}

// startChild must be called from a thread that outlives the child.
func startChild(dir, name, bin string, args ...string) (*child, error) {
	c := &child{name: name, cmd: exec.Command(bin, args...), logPath: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.Create(c.logPath)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has a descriptor of its own
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = childAttr()
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = c.cmd.Wait() // ProcessState has what there is to know
		close(c.done)
	}()
	return c, nil
}

// stop asks the child to end, insists after childGrace, and returns its exit code; -1 if a signal ended it.
func (c *child) stop() (code int, err error) {
	if err := c.signal(syscall.SIGTERM); err != nil {
		return -1, err
	}
	t := time.NewTimer(childGrace)
	defer t.Stop()
	select {
	case <-c.done:
	case <-t.C:
		err = fmt.Errorf("%s did not end within %s of SIGTERM and was killed", c.name, childGrace)
	}
	// What it may have left in its process group ends too; usually there is nothing.
	if e := syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL); e != nil && !errors.Is(e, syscall.ESRCH) {
		err = errors.Join(err, fmt.Errorf("kill %s: %w", c.name, e))
	}
	<-c.done
	return c.cmd.ProcessState.ExitCode(), err
}

func (c *child) signal(s syscall.Signal) error {
	if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", c.name, err)
	}
	return nil
}

// ended reports whether the child has ended.
func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// unexpected is the error of a child that has ended too early.
func (c *child) unexpected() error {
	return fmt.Errorf("%s ended by itself (%s)", c.name, c.cmd.ProcessState)
}

// log is what the child has written so far, "" if that cannot be read.
func (c *child) log() string {
	text, err := os.ReadFile(c.logPath)
	if err != nil {
		return ""
	}
	return string(text)
}

// dump prints the end of the child's log.
func (c *child) dump(w io.Writer) {
	lines := strings.Split(strings.TrimRight(c.log(), "\n"), "\n")
	fmt.Fprintf(w, "--- end of the log of %s\n%s\n", c.name, strings.Join(lines[max(0, len(lines)-20):], "\n"))
}
