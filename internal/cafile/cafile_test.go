package cafile

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPoolAndRead(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	folder := t.TempDir()
	good, bad := filepath.Join(folder, "ca.pem"), filepath.Join(folder, "key.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(good, certificate, 0o600))
	require.NoError(t, os.WriteFile(bad, []byte("not PEM"), 0o600))

	pool, err := Pool("")
	require.NoError(t, err)
	assert.Nil(t, pool, "the system's")

	pool, err = Pool(good)
	require.NoError(t, err)
	assert.True(t, pool.Equal(server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs))

	content, err := Read(good)
	require.NoError(t, err)
	assert.Equal(t, certificate, content)

	_, err = Pool(bad)
	require.ErrorContains(t, err, `the CA file "`+bad+`" holds no certificate in PEM`)
	_, err = Pool(filepath.Join(folder, "missing.pem"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Read("")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "cannot read the CA file")
}
