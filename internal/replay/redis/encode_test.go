package redis

import (
	"bytes"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/replay"
	"github.com/envoy-brownout/brownout/internal/replay/storetest"
)

func testEntry(body string) *replay.Entry {
	return storetest.Entry(time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC), body)
}

func TestEveryEntrySurvivesItsEncoding(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e := &replay.Entry{
			Status:  rapid.IntRange(0, 999).Draw(rt, "status"),
			Dialect: rapid.String().Draw(rt, "dialect"),
			Tier:    rapid.String().Draw(rt, "tier"),
			Reason:  rapid.SampledFrom(append(outcome.AllDegraded(), outcome.DegradedNone)).Draw(rt, "reason"),
			Body:    rapid.SliceOf(rapid.Byte()).Draw(rt, "body"),
			Stored:  time.UnixMilli(rapid.Int64Range(-1<<40, 1<<50).Draw(rt, "stored")),
			TTL:     time.Duration(rapid.Int64Range(0, math.MaxInt64/int64(time.Millisecond)).Draw(rt, "ttl")) * time.Millisecond,
		}
		for range rapid.IntRange(0, 4).Draw(rt, "headers") {
			e.Headers = append(e.Headers, outcome.Header{Name: rapid.String().Draw(rt, "name"), Value: rapid.String().Draw(rt, "value")})
		}
		got, ok := decodeEntry(appendEntry(nil, e))
		if !ok {
			rt.Fatal("it is not read back")
		}
		if diff := storetest.Diff(e, got); diff != "" {
			rt.Fatal(diff)
		}
	})
}

func TestAValueThatWasChangedIsNoEntry(t *testing.T) {
	value := appendEntry(nil, testEntry("a body"))
	for i := range value {
		for bit := range 8 {
			bad := bytes.Clone(value)
			bad[i] ^= 1 << bit
			if _, ok := decodeEntry(bad); ok {
				t.Fatalf("read with bit %d of byte %d turned", bit, i)
			}
		}
		if _, ok := decodeEntry(value[:i]); ok {
			t.Fatalf("read with %d of %d bytes", i, len(value))
		}
	}
	for _, more := range []string{"\x00", string(value)} {
		if _, ok := decodeEntry([]byte(string(value) + more)); ok {
			t.Errorf("read with %q after it", more)
		}
	}
}

// FuzzDecodeEntry: what is read is written as the same entry. The checksum of each input is put right, or nothing would ever
// get past it.
func FuzzDecodeEntry(f *testing.F) {
	for _, body := range []string{"", "x", "\x00\xff"} {
		v := appendEntry(nil, testEntry(body))
		f.Add(v[:len(v)-checksumLen])
	}
	f.Add([]byte(magicEntry + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, value []byte) {
		decodeRecord(value)
		e, ok := decodeEntry(withChecksum(value))
		if !ok {
			return
		}
		if size := e.Size(); size > 64*len(value)+4096 {
			t.Fatalf("%d bytes became an entry of %d", len(value), size)
		}
		again, ok := decodeEntry(appendEntry(nil, e))
		if !ok {
			t.Fatal("what was read is not read again")
		}
		if diff := storetest.Diff(e, again); diff != "" {
			t.Error(diff)
		}
	})
}

func withChecksum(b []byte) []byte {
	sum := checksum(b)
	return append(bytes.Clone(b), byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
}

func BenchmarkEntry(b *testing.B) {
	e := testEntry(string(make([]byte, 4096)))
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		buf = appendEntry(buf[:0], e)
		if _, ok := decodeEntry(buf); !ok {
			b.Fatal("not read")
		}
	}
}
