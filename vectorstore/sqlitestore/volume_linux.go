package sqlitestore

import "syscall"

// networkVolumes are the magic numbers of file systems whose locks SQLite
// cannot rely on, from statfs(2).
var networkVolumes = map[uint32]string{
	0x00006969: "nfs",
	0x0000517B: "smb",
	0xFF534D42: "cifs",
	0xFE534D42: "smb2",
	0x00C36400: "ceph",
	0x5346414F: "afs",
	0x73757245: "coda",
	0x0BD00BD0: "lustre",
	0x47504653: "gpfs",
}

// networkVolume names the network file system that holds dir, or "".
func networkVolume(dir string) string {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return ""
	}
	return networkVolumes[uint32(st.Type)]
}
