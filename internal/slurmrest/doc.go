// Package slurmrest speaks to slurmrestd for the rest of the program.
//
// One Client covers data_parser v0.0.42 (Slurm 24.11) to v0.0.45 (26.05): it asks
// the server which of them it has, takes the newest, and asks again when an
// upgrade has removed the one in use. Requests and update bodies come from
// slurm-client's generated code; answers are read by one streaming decoder for
// all versions, because the fields used here have the same JSON in each.
//
// What the answers mean:
//   - Slurm's own error numbers decide. slurmrestd sends them with HTTP 200, 422,
//     500, 502, 504 or 511, depending on the release.
//   - Reads are repeated after transient failures. An update is repeated only if
//     slurmctld cannot have seen it, or if seeing it twice makes no difference:
//     power_up twice calls ResumeProgram twice. When the outcome stays unknown,
//     Error.Unknown is set and the caller looks at the node again.
//   - A list is returned only when the answer arrived whole and without errors.
package slurmrest
