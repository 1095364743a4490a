//go:build !linux

package app

import "syscall"

// childAttr gives a child a process group of its own. A demo that is killed leaves its children behind here.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
