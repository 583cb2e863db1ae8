package slurmrest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// Slurm error numbers this package decides by (slurm/slurm_errno.h, equal in 24.11 and 26.05).
const (
	errCommConnect        = 1001 // SLURM_COMMUNICATIONS_CONNECTION_ERROR
	errCommSend           = 1002 // SLURM_COMMUNICATIONS_SEND_ERROR
	errCommReceive        = 1003 // SLURM_COMMUNICATIONS_RECEIVE_ERROR
	errCommShutdown       = 1004 // SLURM_COMMUNICATIONS_SHUTDOWN_ERROR
	errProtocolAuth       = 1007 // SLURM_PROTOCOL_AUTHENTICATION_ERROR
	errCommRejected       = 1019 // SLURM_COMMUNICATIONS_REJECTED
	errCommConnTimeout    = 1021 // SLURM_COMMUNICATIONS_CONNECT_TIMEOUT
	errCommWriteTimeout   = 1022 // SLURM_COMMUNICATIONS_WRITE_TIMEOUT
	errCommReadTimeout    = 1023 // SLURM_COMMUNICATIONS_READ_TIMEOUT
	errCtldConnect        = 1800 // SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR
	errCtldSend           = 1801 // SLURMCTLD_COMMUNICATIONS_SEND_ERROR
	errCtldReceive        = 1802 // SLURMCTLD_COMMUNICATIONS_RECEIVE_ERROR
	errCtldShutdown       = 1803 // SLURMCTLD_COMMUNICATIONS_SHUTDOWN_ERROR
	errCtldBackoff        = 1804 // SLURMCTLD_COMMUNICATIONS_BACKOFF
	errCtldHardDrop       = 1805 // SLURMCTLD_COMMUNICATIONS_HARD_DROP
	errAccessDenied       = 2002 // ESLURM_ACCESS_DENIED
	errUserIDMissing      = 2010 // ESLURM_USER_ID_MISSING: the user may not do this
	errInvalidJobID       = 2017 // ESLURM_INVALID_JOB_ID: slurmctld does not know the job (any more)
	errInvalidNodeName    = 2018 // ESLURM_INVALID_NODE_NAME
	errAlreadyDone        = 2021 // ESLURM_ALREADY_DONE: a signal for a job that has ended
	errJobPending         = 2024 // ESLURM_JOB_PENDING: nothing to requeue
	errStandby            = 2027 // ESLURM_IN_STANDBY_MODE
	errInvalidNodeState   = 2028 // ESLURM_INVALID_NODE_STATE: 24.11's word for a refused transition
	errDisabled           = 2037 // ESLURM_DISABLED: a requeue of a job with --no-requeue
	errBatchOnly          = 2039 // ESLURM_BATCH_ONLY: a requeue of a job of srun or salloc
	errReservationInvalid = 2053 // ESLURM_RESERVATION_INVALID: slurmctld has none of that name
	errJobNotPending      = 2073 // ESLURM_JOB_NOT_PENDING
	errJobFinished        = 2084 // ESLURM_JOB_FINISHED: an update of a job that has ended
	errStandbyUseBackup   = 2131 // ESLURM_IN_STANDBY_USE_BACKUP
	errInvalidTransition  = 2180 // ESLURM_INVALID_NODE_STATE_TRANSITION, newer releases
	errIncompletePacket   = 5003 // ESLURM_PROTOCOL_INCOMPLETE_PACKET
	errSocketTimeout      = 5004 // SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT
	errSocketZeroBytes    = 5005 // SLURM_PROTOCOL_SOCKET_ZERO_BYTES_SENT
	errAuthFirst          = 6000 // ESLURM_AUTH_CRED_INVALID and following
	errAuthLast           = 6011
	errRestAuthFail       = 9008 // ESLURM_REST_AUTH_FAIL
)

// fate says what a failed request did at slurmctld.
type fate int

const (
	refused   fate = iota // slurmctld or slurmrestd said no; asking again gives the same answer
	unsent                // slurmctld cannot have seen it; may work later
	uncertain             // slurmctld may have acted on it; may work later
	badToken              // refused for its token; worth one attempt with a fresh one
	broken                // no sensible answer, or nobody waited for it: slurmctld may have acted on it
)

// Error is a request that did not succeed.
type Error struct {
	Op          string // "list nodes", "update nodes", …
	Server      string
	HTTPStatus  int    // 0 when no answer came
	Number      int    // Slurm error number (slurm/slurm_errno.h), 0 when there is none
	Name        string // Slurm's text for Number
	Description string // what slurmrestd was doing
	Source      string // the function or the JSON path it names
	Unknown     bool   // an update that slurmctld may have carried out all the same

	fate       fate
	unknownURL bool // a 404 from slurmrestd's router, not from Slurm
	cause      error
}

// Error says what failed, where, and what to do.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: slurmrestd at %s: ", e.Op, e.Server)
	switch {
	case e.cause != nil:
		b.WriteString(e.cause.Error())
	case e.Name != "" && e.Description != "":
		fmt.Fprintf(&b, "%s: %s", e.Description, e.Name)
	default:
		b.WriteString(e.Description + e.Name)
	}
	switch {
	case e.Number != 0 && e.HTTPStatus != 0:
		fmt.Fprintf(&b, " (Slurm error %d, HTTP %d)", e.Number, e.HTTPStatus)
	case e.HTTPStatus != 0 && e.HTTPStatus != http.StatusOK:
		fmt.Fprintf(&b, " (HTTP %d)", e.HTTPStatus)
	}
	if e.Unknown {
		b.WriteString("; slurmctld may have carried it out all the same")
	}
	if hint := e.hint(); hint != "" {
		b.WriteString("; " + hint)
	}
	return b.String()
}

func (e *Error) hint() string {
	switch {
	case e.fate == badToken:
		return "the token was refused: is the key file the cluster's jwt_hs256.key, is AuthAltTypes=auth/jwt set for slurmctld, has the token expired, do the clocks agree?"
	case e.Number == errAccessDenied || e.Number == errUserIDMissing:
		return "the token's user may not do this: use a token for SlurmUser"
	case strings.HasPrefix(e.Description, "Slurmdb "): // data_parser's resolve of TRES, before it tells of partitions
		return "slurmrestd asks slurmdbd for the names of TRES: is slurmdbd up, and has slurmdbd.conf AuthAltTypes=auth/jwt and the cluster's key?"
	case e.HTTPStatus == 0 && e.fate == uncertain && e.Op == opPartitions:
		return "is slurmrestd running, and is the address right (http or https, host, port)? With accounting it asks slurmdbd for the names of TRES: does that answer?"
	case e.Number == errCtldConnect || e.Number == errCommConnect:
		return "slurmrestd runs but does not reach slurmctld: is slurmctld up?"
	case e.HTTPStatus == 0 && e.fate != refused && !errors.Is(e.cause, context.Canceled):
		return "is slurmrestd running, and is the address right (http or https, host, port)?"
	}
	return ""
}

// SlurmError returns Number, for callers that do not import this package.
func (e *Error) SlurmError() int { return e.Number }

// Unwrap gives the transport's error, if there was one.
func (e *Error) Unwrap() error { return e.cause }

// classify sets the fate from the Slurm error number, or else from the HTTP status.
func (e *Error) classify() *Error {
	switch n := e.Number; {
	case n == errCommConnect, n == errCommConnTimeout, n == errCommRejected, n == errCtldConnect,
		n == errCtldBackoff, n == errCtldHardDrop, n == errStandby, n == errStandbyUseBackup:
		e.fate = unsent
	case n == errCommSend, n == errCommReceive, n == errCommShutdown, n == errCommWriteTimeout, n == errCommReadTimeout,
		n == errCtldSend, n == errCtldReceive, n == errCtldShutdown,
		n == errIncompletePacket, n == errSocketTimeout, n == errSocketZeroBytes:
		e.fate = uncertain
	case n == errProtocolAuth, n == errRestAuthFail, n >= errAuthFirst && n <= errAuthLast:
		e.fate = badToken
	case n != 0:
		e.fate = refused
	case e.HTTPStatus == http.StatusUnauthorized:
		e.fate = badToken
	case e.HTTPStatus == http.StatusNotFound:
		e.unknownURL = e.Source == ""
	case e.HTTPStatus == http.StatusServiceUnavailable:
		e.fate = unsent // a proxy without a server behind it
	case e.HTTPStatus == http.StatusBadGateway, e.HTTPStatus == http.StatusGatewayTimeout:
		e.fate = uncertain
	}
	return e
}

// classifyTransport sets the fate of a request that got no answer.
func (e *Error) classifyTransport(err error) *Error {
	e.cause = err
	var op *net.OpError
	var dns *net.DNSError
	var netErr net.Error
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &cert):
		e.fate = refused
	case errors.As(err, &op) && op.Op == "dial", errors.As(err, &dns):
		e.fate = unsent
	case errors.As(err, &netErr) && netErr.Timeout(), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		e.fate = uncertain
	default:
		e.fate = broken
	}
	return e
}

// NotFoundError lists node names slurmctld does not know. Everything else in the
// same call was done.
type NotFoundError struct{ Names []string }

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("slurmctld does not know %d of the nodes: %s; define them in slurm.conf, or correct the request",
		len(e.Names), slurmconf.CompressHostlist(e.Names))
}

// MissingNodes returns Names, for callers that do not import this package.
func (e *NotFoundError) MissingNodes() []string { return e.Names }

// UnsupportedError means that slurmrestd speaks none of the versions this program knows.
type UnsupportedError struct {
	Server  string
	Release string // Slurm release the server gave, empty if unknown
	Answer  string // start of what it said otherwise
}

func (e *UnsupportedError) Error() string {
	switch {
	case e.Release != "":
		return fmt.Sprintf("slurmrestd at %s is Slurm %s, which is not supported: supported are %s", e.Server, e.Release, SupportedReleases)
	case e.Answer != "":
		return fmt.Sprintf("%s offers no slurmrestd API known here (it says: %s): is it slurmrestd? Supported are Slurm %s", e.Server, e.Answer, SupportedReleases)
	}
	return fmt.Sprintf("%s offers no slurmrestd API known here: is it slurmrestd? Supported are Slurm %s", e.Server, SupportedReleases)
}

// IsNotFound reports whether err names nodes that slurmctld does not know.
func IsNotFound(err error) bool {
	var nf *NotFoundError
	return errors.As(err, &nf)
}

// IsAuth reports whether the token was refused or its user lacks the right.
func IsAuth(err error) bool {
	var e *Error
	var t *TokenError
	return errors.As(err, &t) ||
		errors.As(err, &e) && (e.fate == badToken || e.Number == errAccessDenied || e.Number == errUserIDMissing)
}

// IsTransient reports whether the same call may succeed later.
func IsTransient(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.fate == unsent || e.fate == uncertain)
}

// IsInvalidTransition reports whether slurmctld refused a state change because of
// the state a node is in. In a bulk update the other nodes were changed.
func IsInvalidTransition(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Number == errInvalidTransition || e.Number == errInvalidNodeState)
}

// IsUnknownOutcome reports whether an update may have been carried out although it failed.
func IsUnknownOutcome(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Unknown
}
