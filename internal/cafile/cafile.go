// Package cafile reads the certificate authorities that an operator names.
package cafile

import (
	"crypto/x509"
	"fmt"
	"os"
)

// Pool holds the authorities of a PEM file. An empty name gives nil, which
// crypto/tls takes as the system's. The error names the file.
func Pool(name string) (*x509.CertPool, error) {
	if name == "" {
		return nil, nil
	}
	_, pool, err := read(name)
	return pool, err
}

// Read returns the content of a PEM file that holds at least one certificate.
// The error names the file.
func Read(name string) ([]byte, error) {
	pem, _, err := read(name)
	return pem, err
}

func read(name string) ([]byte, *x509.CertPool, error) {
	pem, err := os.ReadFile(name)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the CA file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, nil, fmt.Errorf("the CA file %q holds no certificate in PEM", name)
	}
	return pem, pool, nil
}
