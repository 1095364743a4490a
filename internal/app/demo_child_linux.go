package app

import "syscall"

// childAttr gives a child a process group of its own and the end of its parent.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
