package metrics

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/envoy-brownout/brownout/internal/outcome"
	"github.com/envoy-brownout/brownout/policy"
)

// The generated part of docs/metrics.md stands between these lines; the rest is written by hand.
const (
	docsPath       = "../../docs/metrics.md"
	rulesPath      = "../../deploy/prometheus/brownout.rules.yaml"
	generatedBegin = "<!-- begin generated: go test ./internal/metrics -update -->\n"
	generatedEnd   = "<!-- end generated -->\n"
)

func TestReferenceInDocsIsCurrent(t *testing.T) {
	page, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), generatedBegin)
	_, after, ok2 := strings.Cut(rest, generatedEnd)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the lines %q and %q", docsPath, generatedBegin, generatedEnd)
	}
	golden(t, docsPath, before+generatedBegin+reference(t)+generatedEnd+after)
}

// reference renders what there is to know of each metric, and the alerting rules.
func reference(t *testing.T) string {
	var b strings.Builder
	b.WriteString("\n## Metrics\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
	fs := families(t)
	for _, f := range fs {
		names := labels(f)
		for i, name := range names {
			names[i] = "`" + name + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.GetName(), typeOf(f), strings.Join(names, ", "), meaning(f))
	}
	b.WriteString("\n## Labels\n\n| label | of | values |\n|---|---|---|\n")
	for _, l := range labelDocs() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", l.name, l.of, l.values)
	}
	b.WriteString("\n## Outcomes\n\n| outcome | meaning |\n|---|---|\n")
	for _, o := range outcome.Outcomes() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", o, outcomeMeanings[o])
	}
	rules, err := os.ReadFile(rulesPath)
	if err != nil {
		t.Fatal(err)
	}
	b.WriteString("\n## Alerts\n\nReady to load: [`deploy/prometheus/brownout.rules.yaml`](../deploy/prometheus/brownout.rules.yaml).\n\n```yaml\n")
	return b.String() + string(rules) + "```\n"
}

func meaning(f *dto.MetricFamily) string {
	if bounds := buckets(f); bounds != "" {
		return f.GetHelp() + " Buckets: " + bounds + "."
	}
	return f.GetHelp()
}

type labelDoc struct{ name, of, values string }

// labelDocs says what values each label can have; those from closed sets come from the sets.
func labelDocs() []labelDoc {
	return []labelDoc{
		{"class", "queue_wait", "a value of the policy's `priority.map`, or `default`"},
		{"dialect", "terminal_frames", code(policy.Dialects()...)},
		{"header", "ignored_headers", "the policy's budget and priority headers, " + code("grpc-timeout", "x-deadline-remaining-ms",
			"x-degrade", "x-envoy-expected-rq-timeout-ms", "x-max-queue-ms")},
		{"op", "store_failures", code("lookup", "save", "claim", "settle", "release", "renew", "probe")},
		{"outcome", "requests, upstream", "see below"},
		{"reason", "sheds", list(outcome.Sheds())},
		{"reason", "degraded", list(outcome.AllDegraded())},
		{"reason", "terminal_frames", "of those: " + list([]outcome.Degraded{outcome.DegradedDeadline, outcome.DegradedSlowFirstToken,
			outcome.DegradedStalled, outcome.DegradedUpstreamTruncated, outcome.DegradedUpstreamError, outcome.DegradedPreempted})},
		{"result", "config_reloads", code("success", "error")},
		{"result", "replay", code("hit", "stale") + " given again; " + code("miss") + " looked for and not there; " + code("joined") +
			" waits for the same request that is under way; " + code("stored") + "; " +
			code("not_stored_incomplete", "not_stored_capped", "not_stored_empty", "not_stored_refused", "not_stored_too_large", "not_stored_private",
				"not_stored_degraded", "not_stored_error") + " the answer was not to be kept; " + code("not_kept") +
			" the request forbids it; " + code("conflict", "mismatch", "malformed_key") + " 409, 422 and 400 of idempotency keys; " + code("store_failed") + " went on without the store"},
		{"route", "arrivals, requests", "a route of the policy, or `none`: no route matched"},
		{"sealed", "cuts", code("true", "false")},
		{"tier", "all with it", "a tier of the policy; of sheds also `none`: before any tier was asked"},
		{"version", "build_info", "of the binary"},
	}
}

func list[T fmt.Stringer](values []T) string {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = v.String()
	}
	return code(names...)
}

func code(names ...string) string { return "`" + strings.Join(names, "`, `") + "`" }

// outcomeMeanings says to operators what the outcomes are.
var outcomeMeanings = map[outcome.Outcome]string{
	outcome.ClientAborted: "The caller left before the answer was whole. Without the seal: before its headers.",
	outcome.ShedOutcome:   "Refused by brownout; `brownout_sheds_total` says why.",
	outcome.Deadline:      "The deadline passed: 504 when no headers were out, else the stream was ended by a frame of ours. Where bodies are not watched (`stream: false`) only counted.",
	outcome.Evicted:       "Accepted by the upstream, then thrown out.",
	outcome.Truncated:     "The answer ended without its end: cut, or over without evidence that it is complete. Unsealed, callers that left in the middle are among them.",
	outcome.Stalled:       "The stream fell silent for `stream.idle`.",
	outcome.Quota:         "The caller's or the account's quota is spent, as the error's body says. Where bodies are not watched it counts as `throttled`.",
	outcome.Throttled:     "The upstream answered 429.",
	outcome.Overloaded:    "The upstream answered 503 or 529, or a circuit breaker of Envoy's did.",
	outcome.UpstreamError: "The upstream answered another 5xx or could not be reached, or its answer was an error under a 200.",
	outcome.BadRequest:    "The upstream, or Envoy, answered another 4xx.",
	outcome.Empty:         "200 with nothing inside.",
	outcome.Refusal:       "The model declined; an answer.",
	outcome.Capped:        "Ended at a length limit; an answer.",
	outcome.Replayed:      "Answered from the store: a kept answer, or that of a request under way.",
	outcome.DegradedOK:    "A lower tier answered well, or the upstream calls its own answer degraded.",
	outcome.OK:            "The first tier answered well.",
	outcome.Unmatched:     "No route matched: passed untouched.",
}

func TestEveryOutcomeHasAMeaning(t *testing.T) {
	for _, o := range outcome.Outcomes() {
		if outcomeMeanings[o] == "" {
			t.Errorf("outcome %s has no meaning in the docs", o)
		}
	}
}

func TestEveryLabelIsDocumented(t *testing.T) {
	var documented, used []string
	for _, l := range labelDocs() {
		documented = append(documented, l.name)
	}
	for _, f := range families(t) {
		for _, name := range labels(f) {
			used = append(used, name)
			if !slices.Contains(documented, name) {
				t.Errorf("label %s of %s is not documented", name, f.GetName())
			}
		}
	}
	for _, name := range documented {
		if !slices.Contains(used, name) {
			t.Errorf("label %s is documented, but no metric has it", name)
		}
	}
}
