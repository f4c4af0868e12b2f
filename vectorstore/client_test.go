package vectorstore_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/vectorstore"
)

// authority makes a self-signed certificate for 127.0.0.1 and its PEM file.
func authority(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

func TestTLSWithACustomAuthority(t *testing.T) {
	cert, file := authority(t)
	s, addr := serve(t, grpc.Creds(credentials.NewServerTLSFromCert(&cert)))
	s.reply("HasCollection", &milvuspb.BoolResponse{Status: ok(), Value: true})
	for _, tt := range []struct {
		name string
		cfg  vectorstore.Config
		want codes.Code
	}{
		{"its file", vectorstore.Config{CAFile: file}, codes.OK},
		{"a configuration", vectorstore.Config{TLS: &tls.Config{InsecureSkipVerify: true}}, codes.OK},
		{"the system's authorities", vectorstore.Config{TLS: &tls.Config{}}, codes.Unavailable},
		{"no TLS", vectorstore.Config{}, codes.Unavailable},
	} {
		tt.cfg.Address = addr
		c := connect(t, tt.cfg)
		g, _ := guard(t)
		_, err := g.HasCollection(t.Context(), c, "docs")
		assert.Equal(t, tt.want, status.Code(err), "%s: %v", tt.name, err)
	}
}

func TestCredentialsAndDatabaseAreSent(t *testing.T) {
	s, addr := serve(t)
	var got metadata.MD
	s.on("HasCollection", func(ctx context.Context, _ any) (any, error) {
		got, _ = metadata.FromIncomingContext(ctx)
		return &milvuspb.BoolResponse{Status: ok()}, nil
	})
	for _, tt := range []struct {
		cfg  vectorstore.Config
		want string
	}{
		{vectorstore.Config{Username: "root", Password: "pass"}, "root:pass"},
		{vectorstore.Config{APIKey: "key"}, "key"},
	} {
		tt.cfg.Address, tt.cfg.Database = addr, "tenant"
		g, _ := guard(t)
		_, err := g.HasCollection(t.Context(), connect(t, tt.cfg), "docs")
		require.NoError(t, err)
		assert.Equal(t, []string{base64.StdEncoding.EncodeToString([]byte(tt.want))}, got.Get("authorization"))
		assert.Equal(t, []string{"tenant"}, got.Get("dbname"))
	}
}
