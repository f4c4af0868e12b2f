module github.com/penstock-go/penstock/bench

go 1.26.0

replace github.com/penstock-go/penstock => ../

require (
	github.com/cenkalti/backoff/v5 v5.0.3
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/penstock-go/penstock v0.0.0
	github.com/sony/gobreaker/v2 v2.4.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/aws/aws-sdk-go-v2 v1.48.0 // indirect
	github.com/aws/smithy-go v1.28.9 // indirect
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/sashabaranov/go-openai v1.43.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
