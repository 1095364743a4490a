package stub

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
)

// maxInspect bounds how much of a request body is kept to look for "stream": true. The rest is only counted and hashed.
const maxInspect = 1 << 20

// body is what is known of a request body after reading all of it.
type body struct {
	bytes  int64
	sha256 string // hex
	stream bool   // it is a JSON object with "stream": true
}

// readBody reads all of r's body, so that a client that leaves later is noticed at once.
func readBody(r *http.Request) (body, error) {
	sum := sha256.New()
	var head bytes.Buffer
	if _, err := io.Copy(io.MultiWriter(sum, &head), io.LimitReader(r.Body, maxInspect)); err != nil {
		return body{}, err
	}
	rest, err := io.Copy(sum, r.Body)
	if err != nil {
		return body{}, err
	}
	b := body{bytes: int64(head.Len()) + rest, sha256: hex.EncodeToString(sum.Sum(nil))}
	if rest == 0 {
		b.stream = asksStream(head.Bytes())
	}
	return b, nil
}

func asksStream(text []byte) bool {
	var request struct {
		Stream bool `json:"stream"`
	}
	return json.Unmarshal(text, &request) == nil && request.Stream
}
