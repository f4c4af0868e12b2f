package inband_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/inband"
)

func TestEmpty(t *testing.T) {
	for text, want := range map[string]bool{
		`null`: true, `false`: true, `0`: true, `""`: true, `[]`: true, `{}`: true,
		`{"code":0,"message":"","details":[null,{"a":false}]}`: true,
		`true`:            false,
		`1`:               false,
		`" "`:             false,
		`[0,1]`:           false,
		`{"a":[{"b":1}]}`: false,
	} {
		var v any
		require.NoError(t, json.Unmarshal([]byte(text), &v))
		assert.Equal(t, want, inband.Empty(v), text)
	}
}
