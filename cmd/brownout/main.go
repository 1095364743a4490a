// Command brownout is an Envoy external processor that treats GPU inference as a metered, preemptible dependency.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/envoy-brownout/brownout/internal/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := app.Main(ctx, os.Args[1:], app.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
