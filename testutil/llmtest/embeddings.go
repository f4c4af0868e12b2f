package llmtest

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"math"
	"net/http"
	"strconv"

	"github.com/sashabaranov/go-openai"
)

func embeddingRequest(body []byte) (r openai.EmbeddingRequest, err error) {
	err = json.Unmarshal(body, &r)
	return r, err
}

func inputTexts(in any) []string {
	switch in := in.(type) {
	case string:
		return []string{in}
	case []any:
		texts := make([]string, 0, len(in))
		for _, v := range in {
			if text, ok := v.(string); ok {
				texts = append(texts, text)
			}
		}
		return texts
	}
	return nil
}

func (h *Handler) embeddings(w http.ResponseWriter, r *http.Request, body []byte, f *Fault) {
	request, err := embeddingRequest(body)
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid_json", err.Error())
		return
	}
	texts := inputTexts(request.Input)
	if h.options.MaxBatch > 0 && len(texts) > h.options.MaxBatch {
		message := fmt.Sprintf("batch size %d is over the limit of %d", len(texts), h.options.MaxBatch)
		refuse(w, h.options.BatchError, "batch_too_large", message)
		return
	}
	response, err := h.options.Embedder.CreateEmbeddings(r.Context(), request)
	if err != nil {
		refuseWith(w, err)
		return
	}
	vectors := Vectors{Data: response.Data}
	if f.Spoil != nil {
		f.Spoil(&vectors)
	}
	h.count(texts)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(encode(&response, &vectors, request.EncodingFormat == openai.EmbeddingEncodingFormatBase64))
}

func (h *Handler) count(texts []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stats.Texts += len(texts)
	for _, text := range texts {
		sum := maphash.String(h.seed, text)
		if _, again := h.seen[sum]; again {
			h.stats.Repeated++
		}
		h.seen[sum] = struct{}{}
	}
}

// encode writes the answer by hand: encoding/json takes longer to encode the
// vectors than the static model to compute them.
func encode(r *openai.EmbeddingResponse, v *Vectors, packed bool) []byte {
	out := make([]byte, 0, 256+len(v.Data)*12*256)
	out = append(out, `{"object":"list","data":[`...)
	for i, e := range v.Data {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, `{"object":"embedding"`...)
		if !v.NoIndex {
			out = strconv.AppendInt(append(out, `,"index":`...), int64(e.Index), 10)
		}
		out = append(appendVector(append(out, `,"embedding":`...), e.Embedding, packed), '}')
	}
	model, _ := json.Marshal(r.Model)
	return fmt.Appendf(out, `],"model":%s,"usage":{"prompt_tokens":%d,"total_tokens":%d}}`,
		model, r.Usage.PromptTokens, r.Usage.TotalTokens)
}

func appendVector(out []byte, v []float32, packed bool) []byte {
	switch {
	case v == nil:
		return append(out, "null"...)
	case packed:
		return appendBase64(out, v)
	}
	out = append(out, '[')
	for i, x := range v {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendFloat(out, float64(x), 'g', -1, 32)
	}
	return append(out, ']')
}

func appendBase64(out []byte, v []float32) []byte {
	raw := make([]byte, 0, 4*len(v))
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return append(base64.StdEncoding.AppendEncode(append(out, '"'), raw), '"')
}
