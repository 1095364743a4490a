// Package answer handles the body of one answer: which bytes go on now, which are held back, whether the answer is
// complete, and how one that is not can still end honestly. It composes frame and dialect and is pure: bytes in, bytes
// out, no clock. It is not safe for concurrent use.
//
// What has gone on always ends between two units, so that an ending can follow at any moment. Bodies that cannot be
// read that way (opaque, encoded, lines of no known dialect) pass as they come, and nothing is ever put behind them, nor
// into a unit above the bound. A complete answer passes byte for byte, to its very end.
package answer
