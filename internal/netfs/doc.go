// Package netfs tells folders of this machine from those of others: SQLite
// cannot rely on the file locks of a network file system.
package netfs
