package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

const defaultLifetime = time.Hour

func lifetime(t *v1alpha1.Token) time.Duration {
	if t.Spec.Lifetime == nil {
		return defaultLifetime
	}
	return t.Spec.Lifetime.Duration
}

func tokenRef(t *v1alpha1.Token) v1alpha1.KeyRef {
	if t.Spec.SecretRef != nil {
		return *t.Spec.SecretRef
	}
	return v1alpha1.KeyRef{Name: t.Name, Key: TokenKey}
}

// mint makes a token as slurmctld does (auth_jwt.c): "sun" is its name for the user.
func mint(key []byte, user string, now time.Time, life time.Duration) (string, error) {
	return jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(life).Unix(), "sun": user, "iss": "slurmtide",
	}).SignedString(key)
}

// minted is when a token was made and when it expires, if the key has signed it for the user.
func minted(token []byte, key []byte, user string) (issued, expires time.Time, ok bool) {
	var claims struct {
		jwt.RegisteredClaims
		User string `json:"sun"`
	}
	_, err := jwt.NewParser(jwt.WithValidMethods([]string{"HS256"}), jwt.WithoutClaimsValidation()).
		ParseWithClaims(string(token), &claims, func(*jwt.Token) (any, error) { return key, nil })
	if err != nil || claims.User != user || claims.IssuedAt == nil || claims.ExpiresAt == nil {
		return time.Time{}, time.Time{}, false
	}
	return claims.IssuedAt.Time, claims.ExpiresAt.Time, true
}

// renewal is when a token is replaced: at four fifths of its life. What is kept of it is the shorter of its own life and what is wanted now.
func renewal(issued, expires time.Time, life time.Duration) time.Time {
	return issued.Add(min(expires.Sub(issued), life) * 4 / 5)
}

// token carries out a Token, and tells when it is due again.
func (l *Loop) token(ctx context.Context, namespace, name string) (time.Duration, error) {
	t, err := l.tokens.Tokens(namespace).Get(name)
	if apierrors.IsNotFound(err) || err == nil && t.DeletionTimestamp != nil {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	next := t.DeepCopy()
	next.Status.ObservedGeneration = t.Generation
	issued, expires, err := l.freshToken(ctx, t)
	seen, err := problem(err)
	one := metav1.Condition{Type: v1alpha1.ConditionIssued, Status: metav1.ConditionTrue, Reason: "Issued", Message: "the token in the Secret is good"}
	switch {
	case seen != nil:
		one.Status, one.Reason, one.Message = metav1.ConditionFalse, seen.Reason, seen.Message
	case err != nil:
		return 0, err
	default:
		next.Status.IssuedAt, next.Status.ExpiresAt = &metav1.Time{Time: issued}, &metav1.Time{Time: expires}
		if !l.o.Now().Before(expires) {
			one.Status, one.Reason, one.Message = metav1.ConditionFalse, "Expired", "the token has expired, and spec.refresh is false: make a new Token"
		}
	}
	setCondition(&next.Status.Conditions, one, t.Generation)
	if bad := writeStatus(ctx, l, "Token", l.tide.SlurmtideV1alpha1().Tokens(namespace), t, next, t.Status.Conditions, next.Status.Conditions); bad != nil {
		return 0, errors.Join(err, bad)
	}
	if err != nil || seen != nil {
		return lookAgain(seen), err
	}
	return againIn(t, issued, expires, l.o.Now()), nil
}

// againIn is when the Token has to be looked at again; 0: not before it changes.
func againIn(t *v1alpha1.Token, issued, expires, now time.Time) time.Duration {
	due := expires
	if enabled(t.Spec.Refresh) {
		due = renewal(issued, expires, lifetime(t))
	} else if !now.Before(expires) {
		return 0
	}
	return max(due.Sub(now), time.Second)
}

// freshToken sees that the Secret has a token that is not due for renewal.
func (l *Loop) freshToken(ctx context.Context, t *v1alpha1.Token) (issued, expires time.Time, err error) {
	key, err := l.signingKey(ctx, t)
	if err != nil {
		return issued, expires, err
	}
	ref, secrets := tokenRef(t), l.kube.CoreV1().Secrets(t.Namespace)
	secret, err := secrets.Get(ctx, ref.Name, metav1.GetOptions{})
	there := err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return issued, expires, fmt.Errorf("reading Secret %s: %w", ref.Name, err)
	}
	if there {
		if owner := metav1.GetControllerOf(secret); owner == nil || owner.UID != t.UID {
			return issued, expires, &Problem{"NameTaken", fmt.Sprintf("Secret %s exists already, and was not made for this Token: delete it, or make this Token anew with another one in spec.secretRef", ref.Name)}
		}
		var ok bool
		issued, expires, ok = minted(secret.Data[ref.Key], key, t.Spec.Username)
		if ok && (!enabled(t.Spec.Refresh) || l.o.Now().Before(renewal(issued, expires, lifetime(t)))) {
			return issued, expires, nil
		}
	}
	issued = l.o.Now().Truncate(time.Second)
	expires = issued.Add(lifetime(t)).Truncate(time.Second)
	text, err := mint(key, t.Spec.Username, issued, lifetime(t))
	if err != nil {
		return issued, expires, fmt.Errorf("signing: %w", err)
	}
	l.o.Metrics.wrote("secrets")
	if there {
		next := secret.DeepCopy()
		next.Data = map[string][]byte{ref.Key: []byte(text)}
		_, err = secrets.Update(ctx, next, metav1.UpdateOptions{FieldManager: FieldManager})
	} else {
		_, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: owned(t.Namespace, ref.Name, tokenLabels(), ownerOf(t, "Token")),
			Data:       map[string][]byte{ref.Key: []byte(text)},
		}, metav1.CreateOptions{FieldManager: FieldManager})
	}
	if err != nil {
		return issued, expires, fmt.Errorf("writing Secret %s: %w", ref.Name, err)
	}
	return issued, expires, nil
}

// signingKey is the key of the Token, or of its Controller.
func (l *Loop) signingKey(ctx context.Context, t *v1alpha1.Token) ([]byte, error) {
	if t.Spec.JWTKeyRef != nil {
		return l.secretKey(ctx, t.Namespace, "spec.jwtKeyRef", *t.Spec.JWTKeyRef)
	}
	ref := cmp.Or(t.Spec.ControllerRef, &v1alpha1.ObjectRef{})
	c, err := l.controllers.Controllers(t.Namespace).Get(ref.Name)
	if apierrors.IsNotFound(err) {
		return nil, &Problem{"ControllerMissing", fmt.Sprintf("there is no Controller %s in this namespace: create it", ref.Name)}
	}
	if err != nil {
		return nil, err
	}
	if c, err = l.withItsKeys(c); err != nil {
		return nil, err
	}
	return l.secretKey(ctx, t.Namespace, "the key of Controller "+ref.Name, jwtKeyRef(c))
}
