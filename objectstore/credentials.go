package objectstore

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/penstock-go/penstock/internal/secret"
)

// trimmed is c with the keys and the region as they were meant.
func (c Config) trimmed() (Config, error) {
	for _, k := range []key{
		{"AccessKeyID", &c.AccessKeyID},
		{"SecretAccessKey", &c.SecretAccessKey},
		{"SessionToken", &c.SessionToken},
		{"Region", &c.Region},
	} {
		text, err := trim(k.name, *k.value)
		if err != nil {
			return c, err
		}
		*k.value = text
	}
	return c, nil
}

// trim is secret.Trim for a value of NewClient's. A value of nothing but white
// space is an error: the chain would be asked in its place.
func trim(name, value string) (string, error) {
	text, err := secret.Trim(name, value)
	if err != nil {
		return "", &InputError{"NewClient", err.Error()}
	}
	if text == "" && value != "" {
		return "", &InputError{"NewClient", name + " is nothing but white space"}
	}
	return text, nil
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
			keys, from = s.Credentials, "of the environment"
		case config.SharedConfig:
			keys, from = s.Credentials, fmt.Sprintf("of the profile %q", s.Profile)
		}
		if !keys.HasKeys() {
			continue
		}
		for _, k := range named(&keys) {
			if _, err := trim(k.name+" "+from, *k.value); err != nil {
				return err
			}
		}
		return nil
	}
	return nil
}

type key struct {
	name  string
	value *string
}

// named are the parts of credentials as the environment calls them.
func named(c *aws.Credentials) []key {
	return []key{
		{"AWS_ACCESS_KEY_ID", &c.AccessKeyID},
		{"AWS_SECRET_ACCESS_KEY", &c.SecretAccessKey},
		{"AWS_SESSION_TOKEN", &c.SessionToken},
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
	for _, k := range named(&c) {
		if *k.value, err = secret.Trim(k.name+", from "+c.Source+",", *k.value); err != nil {
			return aws.Credentials{}, &CredentialsError{err}
		}
	}
	return c, nil
}
