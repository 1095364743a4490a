package redis

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"time"

	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/internal/replay"
)

// What a value begins with: what it is, and the version of its form.
const (
	magicEntry  = "BRE\x01" // an entry, and a checksum
	magicClaim  = "BRC\x01" // a fingerprint and a token
	magicRecord = "BRR\x01" // a fingerprint and an entry
)

const (
	magicLen    = len(magicEntry)
	checksumLen = crc32.Size
	recordHead  = magicLen + len(replay.Key{})
)

// appendEntry writes an entry: numbers as varints, times in milliseconds, texts with their length, and at the end a
// CRC-32C over all of it.
func appendEntry(dst []byte, e *replay.Entry) []byte {
	start := len(dst)
	dst = append(dst, magicEntry...)
	dst = binary.AppendUvarint(dst, uint64(max(e.Status, 0)))
	dst = binary.AppendVarint(dst, e.Stored.UnixMilli())
	dst = binary.AppendUvarint(dst, uint64(max(e.TTL.Milliseconds(), 0)))
	dst = appendText(dst, e.Reason.String())
	dst = appendText(dst, e.Dialect)
	dst = appendText(dst, e.Tier)
	dst = binary.AppendUvarint(dst, uint64(len(e.Headers)))
	for _, h := range e.Headers {
		dst = appendText(appendText(dst, h.Name), h.Value)
	}
	dst = appendText(dst, string(e.Body))
	return binary.LittleEndian.AppendUint32(dst, checksum(dst[start:]))
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// decodeEntry reads what appendEntry wrote. False: it did not write b. The entry shares b's memory.
func decodeEntry(b []byte) (*replay.Entry, bool) {
	if len(b) < magicLen+checksumLen || string(b[:magicLen]) != magicEntry {
		return nil, false
	}
	body, sum := b[:len(b)-checksumLen], b[len(b)-checksumLen:]
	if checksum(body) != binary.LittleEndian.Uint32(sum) {
		return nil, false
	}
	r := reader{rest: body[magicLen:], ok: true}
	e := &replay.Entry{Status: int(r.number(999))}
	e.Stored = time.UnixMilli(r.signed())
	e.TTL = time.Duration(r.number(math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
	e.Reason = r.reason()
	e.Dialect, e.Tier = string(r.text()), string(r.text())
	for range r.number(uint64(len(r.rest)) / 2) { // a header takes two bytes at least
		e.Headers = append(e.Headers, outcome.Header{Name: string(r.text()), Value: string(r.text())})
	}
	e.Body = r.text()
	return e, r.ok && len(r.rest) == 0
}

// reader takes values off the front of rest; ok turns false at the first one that is not there.
type reader struct {
	rest []byte
	ok   bool
}

// number reads a varint that is not above most.
func (r *reader) number(most uint64) uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > most {
		r.ok, r.rest = false, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) signed() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.ok, r.rest = false, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) text() []byte {
	n := r.number(uint64(len(r.rest)))
	if n > uint64(len(r.rest)) {
		r.ok, r.rest = false, nil
		return nil
	}
	t := r.rest[:n:n]
	r.rest = r.rest[n:]
	return t
}

// reason reads a degraded reason by its name, which outlives a change of the enum's order.
func (r *reader) reason() outcome.Degraded {
	name := string(r.text())
	if name == "" {
		return outcome.DegradedNone
	}
	for _, d := range outcome.AllDegraded() {
		if d.String() == name {
			return d
		}
	}
	r.ok = false
	return outcome.DegradedNone
}

// claimValue is what lies under a key while c holds it.
func claimValue(c replay.Claim) []byte {
	b := append([]byte(magicClaim), c.Fingerprint[:]...)
	return append(b, c.Token...)
}

// recordValue is what lies under a key once c was settled with e.
func recordValue(c replay.Claim, e *replay.Entry) []byte {
	b := make([]byte, 0, recordHead+e.Size())
	b = append(append(b, magicRecord...), c.Fingerprint[:]...)
	return appendEntry(b, e)
}

// decodeRecord reads the entry of a record.
func decodeRecord(b []byte) (*replay.Entry, bool) {
	if len(b) < recordHead || string(b[:magicLen]) != magicRecord {
		return nil, false
	}
	return decodeEntry(b[recordHead:])
}
