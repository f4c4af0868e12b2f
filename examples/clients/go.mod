module github.com/penstock-go/penstock/examples/clients

go 1.26.0

replace github.com/penstock-go/penstock => ../../

require (
	github.com/meilisearch/meilisearch-go v0.37.0
	github.com/openai/openai-go/v3 v3.98.0
	github.com/penstock-go/penstock v0.0.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/andybalholm/brotli v1.1.1 // indirect
	github.com/coder/websocket v1.8.15 // indirect
	github.com/golang-jwt/jwt/v5 v5.3.1 // indirect
	github.com/tidwall/gjson v1.20.0 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/pretty v1.2.1 // indirect
	github.com/tidwall/sjson v1.2.5 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
