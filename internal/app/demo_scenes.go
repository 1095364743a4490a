package app

import (
	"slices"
	"time"
)

// scene is one failure mode: what is sent, what must come back, and what that means.
type scene struct {
	title   string
	before  string   // what happens, in plain words
	path    string   // "" means demoPath
	headers []string // of the request
	// running and waiting requests of the demo's own hold slots and places meanwhile.
	running, waiting int

	status     int
	exit       int               // of the client
	exitH2     int               // of the client over HTTP/2; 0 means as exit
	source     string            // x-brownout-source
	tier       string            // x-tier; "" means that it must be absent
	want       map[string]string // further headers; anyValue means present, "" absent
	body       string            // is in the body
	outcome    string            // what brownout counts it as
	arrived    int               // calls that reach the model
	cancelled  int               // calls the model was told to drop
	ignored    string            // header counted as ignored
	from, upTo time.Duration     // bounds of the time to the answer, by Envoy's access log; 0 means none

	after string // what it means, in plain words
	blame string // overrides what the headers say
}

// anyValue in scene.want accepts every value.
const anyValue = "*"

// scenes are the failure modes in the order they are shown.
func scenes() []scene {
	list := []scene{{
		title:  "ok: for comparison, a request that is served",
		status: 200, source: "upstream", tier: "full", want: map[string]string{"x-degraded": "false"}, body: "{}", outcome: "ok", arrived: 1,
		after: "The labels of a good answer: who wrote it, which tier gave it, and that it is not less than was asked for.",
	}}
	return slices.Concat(list, upstreamScenes(), endingScenes(), timeScenes(), queueScenes(), ladderScenes())
}

// upstreamScenes are what upstreams do by themselves. The answer passes on; the label says whose it is.
func upstreamScenes() []scene {
	return []scene{{
		title: "throttle: the model server says 429", headers: []string{"x-stub-mode: throttle"},
		status: 429, source: "upstream", tier: "full", want: map[string]string{"retry-after": "2"}, body: "rate_limit_exceeded", outcome: "throttled", arrived: 1,
		after: "The upstream refused, not brownout. Its body and its retry-after pass on untouched.",
	}, {
		title: "error: the model server fails", headers: []string{"x-stub-mode: error"},
		status: 500, source: "upstream", tier: "full", body: "server_error", outcome: "upstream_error", arrived: 1,
		after: "A failure of the upstream stays one: same status, same body.",
	}, {
		title: "evict: accepted, then thrown out", headers: []string{"x-stub-mode: evict"},
		status: 503, source: "upstream", tier: "full", body: "evicted", outcome: "evicted", arrived: 1,
		after: "A 503 too, but not one of ours: the model server took the job and gave it up, as its body says. Without the label it could not be told from a shed.",
	}, {
		title: "unreachable: nobody listens at the upstream's address", path: gonePath,
		status: 503, source: "envoy", want: map[string]string{"x-degraded": "false"}, outcome: "upstream_error",
		after: "Envoy wrote this answer because it could not connect. No tier answered, so none is named.",
	}, {
		title: "empty: a 200 with nothing in it", headers: []string{"x-stub-mode: empty"},
		status: 200, source: "upstream", tier: "full", body: `"content":null`, outcome: "empty", arrived: 1,
		after: "No status tells this from a good answer, but the body does. It passes on as it is and is counted as what it is.",
		blame: "the upstream, which only brownout's counters say",
	}, {
		title: "refuse: a 200 in which the model declines", headers: []string{"x-stub-mode: refuse"},
		status: 200, source: "upstream", tier: "full", body: `"refusal":"I cannot help with that."`, outcome: "refusal", arrived: 1,
		after: "A refusal is an answer. It passes on as it is and is counted apart.",
	}}
}

// endingScenes are streams that cannot be whole.
func endingScenes() []scene {
	return []scene{{
		title: "truncate: half an answer, then the socket is destroyed", headers: []string{"x-stub-mode: truncate"},
		status: 200, source: "upstream", tier: "full", outcome: "truncated", arrived: 1,
		body: `data: {"delta":"partial "}` + "\n\nevent: done\n" + `data: {"tier":"full","degraded":true,"reason":"upstream_truncated","complete":false}` + "\n\n",
		after: "The status was out before the upstream died. The seal turned the cut into an end, and brownout wrote the last event: the transfer is " +
			"whole, and the answer says of itself that it is not. Half a sentence is never taken for an answer.",
		blame: "the upstream, which closed the connection in the middle of its answer (reason upstream_truncated in the last event)",
	}, {
		title: "the same without the seal", path: unsealedPath, headers: []string{"x-stub-mode: truncate"},
		status: 200, exit: 18, exitH2: 92, source: "upstream", tier: "full", body: `data: {"delta":"partial "}`, outcome: "truncated", arrived: 1,
		after: "This route says stream: {seal: false}. Envoy resets the client when the upstream dies, and no filter can prevent it: only the broken " +
			"transfer tells, to a client that looks. The slot came back, and the cut is counted.",
		blame: "the upstream, which closed the connection in the middle of its answer (Envoy's access log says so)",
	}, {
		title: "late: a chat that takes longer than the caller has", headers: []string{"x-stub-mode: stream", "x-stub-gap: 150ms", "x-budget-ms: 400"},
		status: 200, source: "upstream", tier: "full", outcome: "deadline", arrived: 1, cancelled: 1,
		body: `"finish_reason":"length"}],"tier":"full","degraded":true,"reason":"deadline","complete":false}` + "\n\ndata: [DONE]\n\n",
		from: 380 * time.Millisecond, upTo: 2 * time.Second,
		after: "A chat completion ends in its own dialect: the last event is a legal chunk with finish_reason length, which every SDK takes for an answer " +
			"that was cut short, and a reader of our four keys knows why. The upstream was told to stop.",
		blame: "the upstream, which had it and missed the caller's time (reason deadline in the last event)",
	}}
}

// timeScenes are about the caller's budget.
func timeScenes() []scene {
	return []scene{{
		title: "slow: the model needs 8 s, the caller has 400 ms", headers: []string{"x-stub-mode: slow", "x-budget-ms: 400"},
		status: 504, source: "deadline", want: map[string]string{"x-should-retry": "false", "retry-after": ""},
		body: `{"error":{"message":"deadline: deadline","type":"deadline","param":null,"code":"deadline"},"reason":"deadline"}`, outcome: "deadline", arrived: 1, cancelled: 1,
		from: 380 * time.Millisecond, upTo: 2 * time.Second,
		after: "The request had reached the upstream and its time ran out: 504, just before the caller's own clock would have rung, and the " +
			"upstream was told to stop, so that no GPU goes on working for an answer nobody will get.",
	}, {
		title: "garbage: a budget that is no number of milliseconds", headers: []string{"x-budget-ms: 500ms"},
		status: 200, source: "upstream", tier: "full", outcome: "ok", arrived: 1, ignored: "x-budget-ms",
		after: "The value is ignored and counted, and the default budget of 2500 ms holds. A client's mistake never turns into an error of ours.",
	}}
}

// queueScenes are brownout's own refusals.
func queueScenes() []scene {
	return []scene{{
		title: "expired: the time runs out in the queue", headers: []string{"x-budget-ms: 400"}, running: 4,
		before: "First, four requests of the demo take the four slots and keep them.",
		status: 503, source: "shed", want: map[string]string{"x-should-retry": "false", "x-degraded": "false"},
		body: `{"error":{"message":"capacity: deadline_expired","type":"capacity","param":null,"code":"deadline_expired"},"reason":"deadline_expired"}`, outcome: "shed", from: 380 * time.Millisecond, upTo: 2 * time.Second,
		after: "It waited for a slot until its time was gone. 503 and not 504: the upstream was never asked, so the problem is on this side.",
	}, {
		title: "full: no slot and no place to wait", running: 4, waiting: 8,
		before: "First, twelve requests of the demo take the four slots and the eight places.",
		status: 503, source: "shed", want: map[string]string{"retry-after": "1", "retry-after-ms": anyValue, "x-should-retry": "", "x-degraded": "false"},
		body: `{"error":{"message":"capacity: queue_full","type":"capacity","param":null,"code":"queue_full"},"reason":"queue_full"}`, outcome: "shed",
		after: "The thirteenth is refused at once, with the time after which a retry makes sense: shedding instead of collapsing. Then the demo's " +
			"twelve clients hang up: those that ran are cancelled upstream, those that waited leave the queue.",
	}}
}

// ladderScenes are answers that stand in for better ones, and answers that cost nothing.
func ladderScenes() []scene {
	who := "authorization: Bearer demo"
	return []scene{{
		title: "a rung down: the model server says 429, and the ladder goes on", path: ladderPath, headers: []string{"x-stub-mode: throttle"},
		status: 200, source: "template", tier: "canned", want: map[string]string{"x-degraded": "true", "x-degraded-reason": "upstream_throttled"},
		body: `"meta":{"tier":"canned","degraded":true,"reason":"upstream_throttled"`, outcome: "throttled", arrived: 1,
		after: "This route's ladder ends in a fixed text, in the shape the caller's SDK reads. Header and body say what it is: whoever passes it off as a " +
			"model's answer deceives its caller. What the upstream did is counted as such.",
		blame: "the upstream, which refused (x-degraded-reason: upstream_throttled)",
	}, {
		title: "the same, asked by somebody who wants the best or nothing", path: ladderPath, headers: []string{"x-stub-mode: throttle", "x-degrade: never"},
		status: 429, source: "upstream", tier: "full", want: map[string]string{"x-degraded": "false"}, body: "rate_limit_exceeded", outcome: "throttled", arrived: 1,
		after: "x-degrade: never. The error passes on.",
	}, {
		title: "asked for the first time", path: ladderPath, headers: []string{who},
		status: 200, source: "upstream", tier: "full", want: map[string]string{"idempotent-replayed": ""}, body: "{}", outcome: "ok", arrived: 1,
		after: "The route keeps whole answers, each for the caller whose credential it was given to.",
	}, {
		title: "asked again", path: ladderPath, headers: []string{who},
		status: 200, source: "replay", tier: "full", want: map[string]string{"idempotent-replayed": "true", "age": anyValue, "x-degraded": "false"}, body: "{}", outcome: "replayed",
		after: "The same answer, without a slot and without the model. Two hundred callers who ask it at once are one call too.",
		blame: "nobody",
	}}
}
