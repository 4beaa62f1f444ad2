-- A store of version 3, as it was before trials had facts and sources.
BEGIN TRANSACTION;
CREATE TABLE baselines (
	name VARCHAR NOT NULL, 
	trial VARCHAR NOT NULL, 
	created VARCHAR NOT NULL, 
	PRIMARY KEY (name, trial)
);
INSERT INTO "baselines" VALUES('first','a1','2026-11-16T13:16:51.240+00:00');
CREATE TABLE documents (hash VARCHAR NOT NULL, text TEXT NOT NULL, PRIMARY KEY (hash));
CREATE TABLE looks (id VARCHAR NOT NULL, created VARCHAR NOT NULL, text TEXT NOT NULL, PRIMARY KEY (id));
CREATE TABLE meta (
	"key" VARCHAR NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "meta" VALUES('schema_version','3');
INSERT INTO "meta" VALUES('created','2026-11-16T13:16:51.228+00:00');
INSERT INTO "meta" VALUES('created_by','kernloom 0.1.0');
CREATE TABLE reuses (trial VARCHAR NOT NULL, times INTEGER NOT NULL, PRIMARY KEY (trial));
CREATE TABLE samples (
	trial VARCHAR NOT NULL, 
	attempt INTEGER NOT NULL, 
	process INTEGER NOT NULL, 
	inner_count INTEGER NOT NULL, 
	wall_ns TEXT NOT NULL, 
	cpu_ns TEXT NOT NULL, 
	involuntary TEXT NOT NULL, 
	transfer_ns TEXT DEFAULT '[]' NOT NULL, 
	PRIMARY KEY (trial, attempt, process)
)
 WITHOUT ROWID

;
INSERT INTO "samples" VALUES('a1',2,0,10,'[1.5,2.25]','[1.25,2.0]','[0,1]','[]');
CREATE TABLE trials (
	id VARCHAR NOT NULL, 
	attempt INTEGER NOT NULL, 
	created VARCHAR NOT NULL, 
	workload VARCHAR NOT NULL, 
	case_name VARCHAR NOT NULL, 
	target VARCHAR NOT NULL, 
	arch VARCHAR NOT NULL, 
	toolchain VARCHAR NOT NULL, 
	variant VARCHAR NOT NULL, 
	status VARCHAR NOT NULL, 
	verified BOOLEAN NOT NULL, 
	stage VARCHAR NOT NULL, 
	message TEXT NOT NULL, 
	provider VARCHAR NOT NULL, 
	seconds FLOAT NOT NULL, 
	version VARCHAR NOT NULL, 
	point TEXT NOT NULL, 
	params TEXT NOT NULL, 
	metrics TEXT NOT NULL, 
	placement TEXT DEFAULT '{}' NOT NULL, 
	conditions TEXT DEFAULT '{}' NOT NULL, 
	warnings TEXT DEFAULT '[]' NOT NULL, 
	overrides TEXT DEFAULT '[]' NOT NULL, 
	artifacts TEXT NOT NULL, 
	config TEXT NOT NULL, 
	machine TEXT NOT NULL, 
	stderr TEXT NOT NULL, 
	PRIMARY KEY (id, attempt)
);
INSERT INTO "trials" VALUES('a1',1,'2025-01-02T03:04:00.678+00:00','axpy','default','host','x86_64_v3','gcc','release','crashed',0,'correct','SIGSEGV','model',0.25,'0.1.0','{"workload.sizes.N": 1000}','{"vectorize": {"add": {"lanes": 8}}}','{}','{}','{}','[]','[]','[{"name": "axpy.add", "key": "k1", "cached": false}]','{"workload": {"name": "axpy", "sizes": {"N": 1000}, "dtype": "float32"}, "target": {"name": "host", "variant": "release"}, "arch": {"name": "x86_64_v3"}, "toolchain": {"name": "gcc", "extra_flags": ["-O1"]}, "seed": 7}','{"cpu": "test", "cores": 2}','');
INSERT INTO "trials" VALUES('a1',2,'2025-01-02T03:04:01.678+00:00','axpy','default','host','x86_64_v3','gcc','release','ok',1,'','','model',0.25,'0.1.0','{"workload.sizes.N": 1000}','{"vectorize": {"add": {"lanes": 8}}}','{"median_ns": 2.0, "deterministic": []}','{"x": "copied"}','{}','[]','[]','[{"name": "axpy.add", "key": "k1", "cached": false}]','{"workload": {"name": "axpy", "sizes": {"N": 1000}, "dtype": "float32"}, "target": {"name": "host", "variant": "release"}, "arch": {"name": "x86_64_v3"}, "toolchain": {"name": "gcc", "extra_flags": ["-O1"]}, "seed": 7}','{"cpu": "test", "cores": 2}','');
INSERT INTO "trials" VALUES('b2',1,'2025-01-03T03:04:05.678+00:00','softmax','small','aarch64','','','','timeout',0,'','','',60.0,'0.1.0','{}','{}','{}','{}','{}','[]','[]','[]','{"workload": {"name": "softmax"}, "seed": 8}','{}','no end');
CREATE INDEX trials_by_time ON trials (created);
COMMIT;
