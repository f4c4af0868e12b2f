package netfs

import "syscall"

// names are the file systems of other machines, by the magic numbers of
// statfs(2).
var names = map[uint32]string{
	0x6969:     "NFS",
	0x517B:     "SMB",
	0xFE534D42: "SMB",
	0xFF534D42: "CIFS",
	0x00C36400: "Ceph",
	0x0BD00BD0: "Lustre",
	0x5346414F: "AFS",
	0x73757245: "Coda",
	0x01021997: "9P",
	0x19830326: "BeeGFS",
	0x47504653: "GPFS",
}

// Name is the name of the network file system that a folder is on, or "" if it
// is local or unknown.
func Name(folder string) string {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(folder, &stat); err != nil {
		return ""
	}
	return names[uint32(stat.Type)]
}
