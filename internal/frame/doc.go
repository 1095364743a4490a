// Package frame cuts a byte stream into its units as it arrives: the events of an event stream (WHATWG HTML §9.2.5)
// or the lines of NDJSON. It never decodes, never copies a byte twice and never looks at one twice; whole units are
// handed out at once, an unfinished one is held back, so that what has been forwarded always ends between units.
//
// A unit ends at a blank line under any mix of LF, CR and CRLF. A unit larger than the bound goes through
// unframed: its bytes are handed out as they come, and until the next blank line nothing may be put behind them.
//
// A Splitter is not safe for concurrent use.
package frame
