package main

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/chunk"
)

// checkValues refuses values that no run can use, before anything is opened: a
// number below the tag min of its flag or above its tag max, and an empty text
// for a flag with the tag filled.
func (a *app) checkValues() error {
	for _, flag := range a.parsed.Flags() {
		if err := checkValue(flag); err != nil {
			return a.refused(flag, err)
		}
	}
	if s := a.settings; s.LLMBaseURL != "" && s.EmbeddingModel == "" {
		return usage(errors.New("--embedding-model: is empty; name a model of the server of --llm-base-url"))
	}
	return nil
}

// checkAddresses refuses secrets in addresses, where errors and logs would show
// them.
func (s *Settings) checkAddresses() error {
	for _, one := range []struct{ flag, address, secret string }{
		{"--llm-base-url", s.LLMBaseURL, "--llm-api-key, PENSTOCK_LLM_API_KEY or OPENAI_API_KEY"},
		{"--chat-base-url", s.ChatBaseURL, "--chat-api-key or PENSTOCK_CHAT_API_KEY"},
		{"--s3-endpoint", s.S3Endpoint, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"},
		{"--milvus", s.Milvus, "--milvus-user and --milvus-password, or --milvus-api-key"},
	} {
		if strings.ContainsAny(one.address, "@?#") {
			return configuration(fmt.Errorf("%s: an address has no user, query or fragment; credentials belong in %s",
				one.flag, one.secret))
		}
	}
	return nil
}

func checkValue(flag *kong.Flag) error {
	value := flag.Target
	switch {
	case flag.Tag.Has("filled") && value.IsZero():
		return errors.New("is empty")
	case flag.Tag.Has("min") && !atLeast(value, limit(value.Type(), flag.Tag.Get("min"))):
		return fmt.Errorf("%v is less than %s", value, flag.Tag.Get("min"))
	case flag.Tag.Has("max") && !atLeast(limit(value.Type(), flag.Tag.Get("max")), value):
		return fmt.Errorf("%v is more than %s", value, flag.Tag.Get("max"))
	}
	return nil
}

// atLeast compares two numbers of one type. NaN is not at least anything.
func atLeast(value, least reflect.Value) bool {
	if value.CanFloat() {
		return value.Float() >= least.Float()
	}
	return value.Int() >= least.Int()
}

// limit is the number in a tag. TestLimitsOfFlagsAreNumbers checks the tags.
func limit(kind reflect.Type, text string) reflect.Value {
	value := reflect.New(kind).Elem()
	switch {
	case kind == reflect.TypeFor[time.Duration]():
		d, _ := time.ParseDuration(text)
		value.SetInt(int64(d))
	case value.CanFloat():
		f, _ := strconv.ParseFloat(text, 64)
		value.SetFloat(f)
	default:
		n, _ := strconv.ParseInt(text, 10, 64)
		value.SetInt(n)
	}
	return value
}

// refused is the error for the value of a flag, by where the value is from.
func (a *app) refused(flag *kong.Flag, err error) error {
	_, inFile := a.file.values[flag.Name]
	switch source := a.sourceOf(flag, a.given()); {
	case source == sourceCommandLine:
		return usage(fmt.Errorf("--%s: %w", flag.Name, err))
	case inFile && environment(flag) == "":
		return configuration(fmt.Errorf("configuration file %s: %s: %w", a.file.path, flag.Name, err))
	default:
		return usage(fmt.Errorf("--%s (%s): %w", flag.Name, source, err))
	}
}

// check refuses sizes of chunks that do not fit together.
func (c *ChunkFlags) check() error {
	_, err := chunk.New(c.chunks(nil))
	if err == nil {
		return nil
	}
	text := strings.TrimPrefix(err.Error(), chunk.ErrConfig.Error()+": ")
	return usage(fmt.Errorf("--chunk-tokens, --chunk-overlap: %s", text))
}

// newPipeline makes a pipeline. Its errors name the flag.
func newPipeline(config pipeline.Config) (*pipeline.Pipeline, error) {
	p, err := pipeline.New(config)
	if wrong, ok := errors.AsType[*pipeline.ConfigError](err); ok && wrong.Field == "Meta" {
		return nil, usage(fmt.Errorf("--meta: %w", wrong.Err))
	}
	if err != nil {
		return nil, configuration(err)
	}
	return p, nil
}
