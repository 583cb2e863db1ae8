package slurmconf

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Infinite is the time of INFINITE, UNLIMITED and NONE.
const Infinite = time.Duration(math.MaxInt64)

// valueKind is how Slurm reads a value. Source: parse_value.c.
type valueKind int

const (
	kindString valueKind = iota
	kindUint16
	kindUint32
	kindUint64
	kindFloat
	kindBool
	kindDefunct // read and dropped
	kindRecord  // may stand several times, has fields
	kindMany    // may stand several times
)

// checkValue tells what Slurm would refuse.
func checkValue(kind valueKind, value string) error {
	var err error
	switch kind {
	case kindUint16:
		_, err = parseUint(value, 16)
	case kindUint32:
		_, err = parseUint(value, 32)
	case kindUint64:
		_, err = parseUint(value, 64)
	case kindBool:
		_, err = parseBool(value)
	case kindFloat:
		err = checkFloat(value)
	case kindString, kindDefunct, kindRecord, kindMany:
	}
	return err
}

// parseUint reads a number as s_p_handle_uint16, _uint32 and _uint64 do: decimal, 0x in hexadecimal, and with a leading 0 in
// octal, so that 010 is 8. An empty value is 0. K multiplies by 1024, not with 16 bits. INFINITE and UNLIMITED are the largest
// number of that size.
func parseUint(value string, bits int) (uint64, error) {
	largest := uint64(math.MaxUint64) >> (64 - bits)
	if strings.EqualFold(value, "INFINITE") || strings.EqualFold(value, "UNLIMITED") {
		return largest, nil
	}
	n, rest, err := strtoul(value)
	if bits > 16 && rest != "" && rest[0]|0x20 == 'k' {
		n, rest = n*1024, rest[1:]
	}
	switch {
	case rest != "":
		return 0, errors.New("want a number, INFINITE or UNLIMITED")
	case err != nil || n > largest || strings.HasPrefix(value, "-"):
		return 0, fmt.Errorf("want a number from 0 to %d", largest)
	}
	return n, nil
}

// strtoul is that of C with base 0.
func strtoul(s string) (n uint64, rest string, err error) {
	digits := strings.TrimLeft(s, " \t\n\v\f\r")
	negative := strings.HasPrefix(digits, "-")
	if digits != "" && (digits[0] == '+' || digits[0] == '-') {
		digits = digits[1:]
	}
	base, isDigit := 10, func(c byte) bool { return c >= '0' && c <= '9' }
	switch {
	case len(digits) > 2 && digits[0] == '0' && digits[1]|0x20 == 'x' && isHex(digits[2]):
		base, digits, isDigit = 16, digits[2:], isHex
	case strings.HasPrefix(digits, "0"):
		base, isDigit = 8, func(c byte) bool { return c >= '0' && c <= '7' }
	}
	i := 0
	for i < len(digits) && isDigit(digits[i]) {
		i++
	}
	if i == 0 {
		return 0, s, nil
	}
	n, err = strconv.ParseUint(digits[:i], base, 64)
	if negative {
		n = -n
	}
	return n, digits[i:], err
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

func parseBool(value string) (bool, error) {
	switch strings.ToLower(value) {
	case "yes", "up", "true", "1":
		return true, nil
	case "no", "down", "false", "0":
		return false, nil
	}
	return false, errors.New("want yes or no")
}

// checkFloat is stricter than strtof, which takes hexadecimal numbers and "nan(...)", too.
func checkFloat(value string) error {
	if value == "" || strings.EqualFold(value, "INFINITE") || strings.EqualFold(value, "UNLIMITED") {
		return nil
	}
	if _, err := strconv.ParseFloat(value, 32); err != nil || strings.Contains(value, "_") {
		return errors.New("want a number")
	}
	return nil
}

// parseSuspendTime reads a SuspendTime. Slurm takes garbage for 0. Source: _parse_suspend_time.
func parseSuspendTime(value string) (time.Duration, error) {
	if strings.EqualFold(value, "NONE") || strings.EqualFold(value, "INFINITE") || value == "-1" {
		return Infinite, nil
	}
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		return 0, errors.New("want a number of seconds, NONE or INFINITE")
	}
	if n == math.MaxUint32 {
		return Infinite, nil
	}
	return time.Duration(n) * time.Second, nil
}

// seconds reads a time of 16 bits.
func seconds(value string) time.Duration {
	n, err := parseUint(value, 16)
	if err != nil || n == math.MaxUint16 {
		return Infinite
	}
	return time.Duration(n) * time.Second
}
