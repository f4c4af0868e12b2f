package objectstore

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/penstock-go/penstock/internal/secret"
)

// key is a setting that may have white space around it.
type key struct {
	name     string
	value    *string
	optional bool // white space alone is no value, as a mounted secret that is empty
}

// trim takes the white space off. A key of nothing else is an error: another
// one would be looked for in its place.
func (k key) trim() error {
	text, err := secret.Trim(k.name, *k.value)
	if err == nil && text == "" && *k.value != "" && !k.optional {
		err = fmt.Errorf("%s is nothing but white space", k.name)
	}
	*k.value = text
	return err
}

// trim is an *InputError where one of the keys cannot be right.
func trim(keys ...key) error {
	for _, k := range keys {
		if err := k.trim(); err != nil {
			return &InputError{"NewClient", err.Error()}
		}
	}
	return nil
}

// trimmed is c with the endpoint, the region and the keys as they were meant.
func (c Config) trimmed() (Config, error) {
	err := trim(
		key{"Endpoint", &c.Endpoint, true}, key{"Region", &c.Region, true},
		key{"AccessKeyID", &c.AccessKeyID, false}, key{"SecretAccessKey", &c.SecretAccessKey, false},
		key{"SessionToken", &c.SessionToken, true},
	)
	return c, err
}

// checkKeys refuses keys of the environment and of the shared files that no
// request can carry. They are looked at in the chain's order, up to the first
// that would be used.
func (c Config) checkKeys(sources []any) error {
	if c.AccessKeyID != "" {
		return nil
	}
	for _, source := range sources {
		var keys aws.Credentials
		from := ""
		switch s := source.(type) {
		case config.EnvConfig:
			keys, from = s.Credentials, " of the environment"
		case config.SharedConfig:
			keys, from = s.Credentials, fmt.Sprintf(" of the profile %q", s.Profile)
		}
		if keys.HasKeys() {
			return trim(named(&keys, from)...)
		}
	}
	return nil
}

// named are the parts of credentials as the environment calls them.
func named(c *aws.Credentials, from string) []key {
	return []key{
		{"AWS_ACCESS_KEY_ID" + from, &c.AccessKeyID, false},
		{"AWS_SECRET_ACCESS_KEY" + from, &c.SecretAccessKey, false},
		{"AWS_SESSION_TOKEN" + from, &c.SessionToken, true},
	}
}

// explained gives the chain's errors a type, since they look like those of S3,
// and its keys without the white space that files and mounted secrets add.
type explained struct{ chain aws.CredentialsProvider }

// Retrieve is the chain's.
func (p explained) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c, err := p.chain.Retrieve(ctx)
	if err != nil {
		return c, &CredentialsError{err}
	}
	for _, k := range named(&c, ", from "+c.Source+",") {
		if err = k.trim(); err != nil {
			return aws.Credentials{}, &CredentialsError{err}
		}
	}
	return c, nil
}

// signers are the secret keys that a client has signed with. They are never
// sent, but a store that checks signatures has them and may quote them. It is
// safe for concurrent use.
type signers struct {
	mu   sync.Mutex
	keys []string // the latest last
}

// mostSigners is how many keys are kept: those of a role change, and requests
// with an earlier one may still be under way.
const mostSigners = 4

// option has the client's credentials noted.
func (s *signers) option(o *s3.Options) {
	if o.Credentials != nil && !aws.IsCredentialsProvider(o.Credentials, aws.AnonymousCredentials{}) {
		o.Credentials = noted{o.Credentials, s}
	}
}

func (s *signers) note(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key != "" && !slices.Contains(s.keys, key) {
		s.keys = append(slices.Clone(s.keys[max(0, len(s.keys)+1-mostSigners):]), key)
	}
}

func (s *signers) secrets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys
}

// noted are credentials whose secret keys are noted.
type noted struct {
	aws.CredentialsProvider
	by *signers
}

// Retrieve is the provider's.
func (n noted) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c, err := n.CredentialsProvider.Retrieve(ctx)
	n.by.note(c.SecretAccessKey)
	return c, err
}
