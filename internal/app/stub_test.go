package app

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
)

func TestStubHelpShowsEveryModeAndEndpoint(t *testing.T) {
	var out bytes.Buffer
	if code := Main(t.Context(), []string{"stub", "--help"}, Stdio{Out: &out, Err: io.Discard}); code != ExitOK {
		t.Fatalf("exit code %d", code)
	}
	for _, want := range []string{`{"error":"rate_limit_exceeded"}`, `data: {"delta":"partial "}`, "retry-after: 2", "8000 ms", "/stub/stats", "x-stub-latency"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help lacks %q", want)
		}
	}
}

func TestStubNamesTheAddressItCannotListenOn(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	var errs bytes.Buffer
	code := Main(t.Context(), []string{"stub", "--listen", ln.Addr().String()}, Stdio{Out: io.Discard, Err: &errs})
	if code != ExitFailure || !strings.Contains(errs.String(), ln.Addr().String()) || !strings.Contains(errs.String(), "--listen") {
		t.Errorf("exit code %d, said %q", code, errs.String())
	}
}
