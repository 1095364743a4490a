package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
)

// bodyLimit is the default bound on bodies that a route buffers. Header-only routes buffer none, so it must not matter.
const bodyLimit = 8 << 20

func TestBodiesOfAnySizePassUntouched(t *testing.T) {
	onEveryWire(t, stackOptions{}, func(t *testing.T, s *stack, c *http.Client) {
		for _, size := range []int{0, 1 << 20, 5 << 20, bodyLimit + 1<<20} {
			body := make([]byte, size)
			random := rand.NewChaCha8([32]byte{byte(size >> 20)})
			if _, err := random.Read(body); err != nil {
				t.Fatal(err)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.envoy.URL(chatPath), bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("x-budget-ms", "10000")
			a := do(c, req)
			if a.status != 200 {
				t.Errorf("%d bytes: %v", size, a)
			}
			sum := sha256.Sum256(body)
			checkHeader(t, a, "x-stub-body-bytes", fmt.Sprint(size))
			checkHeader(t, a, "x-stub-body-sha256", hex.EncodeToString(sum[:]))
		}
	})
}
