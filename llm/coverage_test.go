package llm_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/llm"
)

// notDoors are the parts of the SDK's client without a door, by how their
// methods' names begin or end, and why.
var notDoors = []struct{ pattern, reason string }{
	{"*Assistant", "assistants keep conversations at OpenAI, and are shut down; no pipeline needs them"},
	{"*Assistants", "see *Assistant"},
	{"*AssistantFile", "see *Assistant"},
	{"*AssistantFiles", "see *Assistant"},
	{"*Thread", "see *Assistant"},
	{"*ThreadAndRun", "see *Assistant"},
	{"*Message", "see *Assistant"},
	{"*MessageFile", "see *Assistant"},
	{"*MessageFiles", "see *Assistant"},
	{"*Run", "see *Assistant"},
	{"*Runs", "see *Assistant"},
	{"*RunStep", "see *Assistant"},
	{"*RunSteps", "see *Assistant"},
	{"SubmitToolOutputs", "see *Assistant"},
	{"*VectorStore", "vectors kept at OpenAI; the door vectorstore is for vectors kept here"},
	{"*VectorStores", "see *VectorStore"},
	{"*VectorStoreFile", "see *VectorStore"},
	{"*VectorStoreFiles", "see *VectorStore"},
	{"*VectorStoreFileBatch", "see *VectorStore"},
	{"*VectorStoreFilesInBatch", "see *VectorStore"},
	{"*FineTune", "training is an operator's work, not a pipeline's"},
	{"*FineTunes", "see *FineTune"},
	{"*FineTuneEvents", "see *FineTune"},
	{"*FineTuneModel", "see *FineTune"},
	{"*FineTuningJob", "see *FineTune"},
	{"*FineTuningJobEvents", "see *FineTune"},
	{"*Batch", "answers come within a day by polling: the batch's state says what an outage is, not a call's"},
	{"CreateBatchWithUploadFile", "see *Batch"},
	{"UploadBatchFile", "see *Batch"},
	{"*File", "files kept at OpenAI serve assistants, training and batches"},
	{"*Files", "see *File"},
	{"CreateFileBytes", "see *File"},
	{"GetFileContent", "see *File"},
	{"Create*Image", "images are not text"},
	{"CreateImage", "see Create*Image"},
	{"CreateSpeech", "sound is not text"},
	{"CreateTranscription", "see CreateSpeech"},
	{"CreateTranslation", "see CreateSpeech"},
	{"*Response", "a second chat API, of OpenAI alone; other servers speak chat completions"},
	{"CreateResponseStream", "see *Response"},
	{"ListResponseInputItems", "see *Response"},
	{"CountResponseInputTokens", "see *Response"},
	{"CreateCompletion", "deprecated by OpenAI for chat completions"},
	{"CreateCompletionStream", "see CreateCompletion"},
	{"Edits", "shut down"},
	{"ListEngines", "deprecated for ListModels"},
	{"GetEngine", "see ListEngines"},
	{"GetModel", "ListModels says the same, and many servers have no other"},
	{"Moderations", "asks about a text instead of working on it; put resilience.Call around it where it is needed"},
}

func excluded(name string) bool {
	for _, e := range notDoors {
		before, after, wild := strings.Cut(e.pattern, "*")
		if name == e.pattern || wild && strings.HasPrefix(name, before) && strings.HasSuffix(name, after) {
			return true
		}
	}
	return false
}

// Every method of the SDK's client is a door or an exclusion with its reason.
func TestEveryMethodOfTheClientIsADoorOrExcluded(t *testing.T) {
	guard := reflect.TypeFor[llm.Guard]()
	client := reflect.TypeFor[*openai.Client]()
	for method := range client.Methods() {
		name := method.Name
		_, door := guard.MethodByName(name)
		assert.True(t, door != excluded(name), "%s: door %v, excluded %v", name, door, excluded(name))
	}
	for method := range guard.Methods() {
		_, real := client.MethodByName(method.Name)
		assert.True(t, real, "%s is no method of the SDK", method.Name)
	}
}

func TestEveryExclusionIsUsed(t *testing.T) {
	client := reflect.TypeFor[*openai.Client]()
	for _, e := range notDoors {
		before, after, wild := strings.Cut(e.pattern, "*")
		used := false
		for method := range client.Methods() {
			name := method.Name
			used = used || name == e.pattern ||
				wild && strings.HasPrefix(name, before) && strings.HasSuffix(name, after)
		}
		assert.True(t, used, e.pattern)
		assert.NotEmpty(t, e.reason, e.pattern)
	}
}
