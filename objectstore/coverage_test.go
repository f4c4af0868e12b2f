package objectstore_test

import (
	"reflect"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/objectstore/objectstoretest"
)

var _ objectstoretest.API = (*s3.Client)(nil)

// Why a method of *s3.Client has no door of its own.
const (
	part     = "a step of UploadFile, which is one call"
	admin    = "configures buckets or access; done by operators and deployment tools, not by a pipeline"
	listing  = "ListObjectsV2 replaces it, or it looks at versions and parts that a pipeline leaves to lifecycle rules"
	object   = "changes or reads an attribute of an object that a pipeline does not use"
	noCall   = "makes no request"
	special  = "belongs to S3 Express, Object Lambda, Glacier or S3 Select"
	teardown = "a pipeline never removes a bucket"
)

var excluded = map[string]string{
	"Options": noCall,

	"AbortMultipartUpload": part, "CompleteMultipartUpload": part, "CreateMultipartUpload": part,
	"UploadPart": part, "UploadPartCopy": part,

	"ListBuckets": listing, "ListMultipartUploads": listing, "ListObjectVersions": listing,
	"ListObjects": listing, "ListParts": listing,

	"DeleteBucket": teardown,

	"CreateSession": special, "ListDirectoryBuckets": special, "RenameObject": special, "RestoreObject": special,
	"SelectObjectContent": special, "WriteGetObjectResponse": special, "GetObjectTorrent": special,

	"DeleteObjectAnnotation": object, "DeleteObjectTagging": object, "GetObjectAcl": object,
	"GetObjectAnnotation": object,
	"GetObjectAttributes": object, "GetObjectLegalHold": object, "GetObjectRetention": object,
	"GetObjectTagging":      object,
	"ListObjectAnnotations": object, "PutObjectAcl": object, "PutObjectAnnotation": object,
	"PutObjectLegalHold": object,
	"PutObjectRetention": object, "PutObjectTagging": object, "UpdateObjectEncryption": object,

	"CreateBucketMetadataConfiguration": admin, "CreateBucketMetadataTableConfiguration": admin,
	"DeleteBucketAnalyticsConfiguration": admin, "DeleteBucketCors": admin, "DeleteBucketEncryption": admin,
	"DeleteBucketIntelligentTieringConfiguration": admin, "DeleteBucketInventoryConfiguration": admin,
	"DeleteBucketLifecycle":             admin,
	"DeleteBucketMetadataConfiguration": admin, "DeleteBucketMetadataTableConfiguration": admin,
	"DeleteBucketMetricsConfiguration": admin,
	"DeleteBucketOwnershipControls":    admin, "DeleteBucketPolicy": admin, "DeleteBucketReplication": admin,
	"DeleteBucketTagging": admin,
	"DeleteBucketWebsite": admin, "DeletePublicAccessBlock": admin,
	"GetBucketAbac": admin, "GetBucketAccelerateConfiguration": admin, "GetBucketAcl": admin,
	"GetBucketAnalyticsConfiguration": admin,
	"GetBucketCors":                   admin, "GetBucketEncryption": admin,
	"GetBucketIntelligentTieringConfiguration": admin,
	"GetBucketInventoryConfiguration":          admin, "GetBucketLifecycleConfiguration": admin,
	"GetBucketLocation": admin, "GetBucketLogging": admin,
	"GetBucketMetadataConfiguration": admin, "GetBucketMetadataTableConfiguration": admin,
	"GetBucketMetricsConfiguration":      admin,
	"GetBucketNotificationConfiguration": admin, "GetBucketOwnershipControls": admin, "GetBucketPolicy": admin,
	"GetBucketPolicyStatus": admin,
	"GetBucketReplication":  admin, "GetBucketRequestPayment": admin, "GetBucketTagging": admin,
	"GetBucketVersioning": admin, "GetBucketWebsite": admin,
	"GetObjectLockConfiguration": admin, "GetPublicAccessBlock": admin,
	"ListBucketAnalyticsConfigurations": admin, "ListBucketIntelligentTieringConfigurations": admin,
	"ListBucketInventoryConfigurations": admin,
	"ListBucketMetricsConfigurations":   admin,
	"PutBucketAbac":                     admin, "PutBucketAccelerateConfiguration": admin, "PutBucketAcl": admin,
	"PutBucketAnalyticsConfiguration": admin,
	"PutBucketCors":                   admin, "PutBucketEncryption": admin,
	"PutBucketIntelligentTieringConfiguration": admin,
	"PutBucketInventoryConfiguration":          admin,
	"PutBucketLifecycleConfiguration":          admin, "PutBucketLogging": admin,
	"PutBucketMetricsConfiguration":      admin,
	"PutBucketNotificationConfiguration": admin, "PutBucketOwnershipControls": admin, "PutBucketPolicy": admin,
	"PutBucketReplication":    admin,
	"PutBucketRequestPayment": admin, "PutBucketTagging": admin, "PutBucketVersioning": admin,
	"PutBucketWebsite":           admin,
	"PutObjectLockConfiguration": admin, "PutPublicAccessBlock": admin,
	"UpdateBucketMetadataAnnotationTableConfiguration": admin, "UpdateBucketMetadataInventoryTableConfiguration": admin,
	"UpdateBucketMetadataJournalTableConfiguration": admin,
}

// TestEveryMethodIsADoorOrExcluded fails when an SDK update brings a method
// that nobody has decided about.
func TestEveryMethodIsADoorOrExcluded(t *testing.T) {
	client, guard := reflect.TypeFor[*s3.Client](), reflect.TypeFor[objectstore.Guard]()
	known := map[string]bool{}
	for m := range client.Methods() {
		known[m.Name] = true
		_, door := guard.MethodByName(m.Name)
		reason := excluded[m.Name]
		assert.True(t, door != (reason != ""), "%s must be a door or be excluded with a reason, one of the two", m.Name)
	}
	for name := range excluded {
		assert.True(t, known[name], "%s is excluded but the SDK does not have it", name)
	}
}
