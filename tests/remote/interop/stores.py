"""Checks with stores: moto, which boto3's own tests use, and versitygw, which checks signatures."""
import time

from common import DIGITS, MIB, digest, need, ok, skipped, write_hub_folder, write_safetensors
from servers import client_of, install_versitygw, make_bucket, moto, variables_of, versitygw

ODD_KEYS = ["with space.safetensors", "plus+plus.safetensors", "ä/ö ü.safetensors", "~tilde.safetensors",
            "paren(theses).safetensors", "key=value&more.safetensors", "%41.safetensors", "%2F%25.safetensors",
            "question?mark#hash.safetensors", "quote'\"!*$,:;@.safetensors", "日本/é.safetensors",
            "long/" + "/".join(["k" * 99] * 8) + "/" + "n" * 79 + ".safetensors"]
ODD_PLACES = ["a//b.safetensors", "dots/../up.safetensors", "./dot.safetensors", "/first.safetensors"]


def body(s3, bucket, key):
    return s3.get_object(Bucket=bucket, Key=key)["Body"].read()


def need_no_uploads(s3, bucket, when):
    left = s3.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    need(not left, f"{when}: unfinished uploads remain: {[upload['Key'] for upload in left]}")


def check_small(stele, s3, bucket, work):
    """A converted file is the same in the bucket and in a local folder."""
    for name in "digits.stele", "digits.safetensors":
        stele("convert", DIGITS, work / name)
        stele("convert", DIGITS, f"s3://{bucket}/dir/{name}")
        remote = body(s3, bucket, f"dir/{name}")
        (work / "read-back").write_bytes(remote)
        stele.need_equal(work / "read-back", work / name)
        stele.need_equal(f"s3://{bucket}/dir/{name}", work / name)
        need(digest(remote) == digest((work / name).read_bytes()), f"{name}: the object has other bytes")
    ok(f"small files: the bytes of a local save ({len(remote)} bytes)")


def check_large(stele, s3, bucket, large):
    """A file of several parts is the same, by every command that reads."""
    url, other = f"s3://{bucket}/large.safetensors", f"s3://{bucket}/copy/large.safetensors"
    stele("convert", large, url)
    tag = s3.head_object(Bucket=bucket, Key="large.safetensors")["ETag"].strip('"')
    need("-" in tag and int(tag.split("-")[1]) > 1, f"large file: the ETag {tag} is not one of several parts")
    stele.need_equal(url, large)
    local = large.with_name("large-local.safetensors")
    stele("convert", large, local)
    need(digest(body(s3, bucket, "large.safetensors")) == digest(local.read_bytes()), "large file: other bytes")
    ok(f"large file: equal, sent in {tag.split('-')[1]} parts")
    need(stele.total(url) == stele.total(large), "large file: another hash")
    stele("convert", url, other)
    stele.need_equal(other, large)
    stele("verify", url)
    need("layer.00000.weight" in stele("inspect", url), "large file: inspect does not list its tensors")
    ok("large file: hash, diff, verify, inspect, and a copy from object to object")
    need_no_uploads(s3, bucket, "large file")


def check_hub_folder(stele, s3, bucket, work):
    folder = write_hub_folder(work / "hub folder")
    for prefix in "hub", "a ä/folder":
        for file in folder.iterdir():
            s3.upload_file(str(file), bucket, f"{prefix}/{file.name}")
        for url in f"s3://{bucket}/{prefix}/", f"s3://{bucket}/{prefix}":
            need("shard1.00002.weight" in stele("inspect", url), f"{url}: inspect does not list the second shard")
            need(stele.total(url) == stele.total(folder), f"{url}: another hash")
    ok("a folder of the hub: inspect and hash, also below a prefix with space and ä")
    stele("convert", folder, f"s3://{bucket}/saved hub/", "--to", "hub")
    stele("diff", "--tensors", f"s3://{bucket}/saved hub/", folder)
    ok("a folder of the hub: saved to the bucket")
    stele("convert", work / "large.safetensors", f"s3://{bucket}/shards ä/model.safetensors.index.json",
          "--shard", "16MB")
    stele.need_equal(f"s3://{bucket}/shards ä/model.safetensors.index.json", work / "large.safetensors")
    ok("shards: saved and read by their index")


def check_keys(stele, s3, bucket, keys):
    """Odd keys are those of the URL: boto3 sees the same, both ways."""
    wanted = DIGITS.read_bytes()
    total = stele.total(DIGITS)
    for key in keys:
        url = f"s3://{bucket}/{key}"
        stele("convert", DIGITS, url)
        names = [found["Key"] for found in s3.list_objects_v2(Bucket=bucket, Prefix=key).get("Contents", [])]
        need(key in names, f"{key}: the store has it under another key ({names})")
        stele.need_equal(url, DIGITS)
        s3.put_object(Bucket=bucket, Key=key, Body=wanted)
        need(stele.total(url) == total, f"{key}: what boto3 puts there has another hash")
    ok(f"{len(keys)} odd keys, both ways with boto3")


def check_presigned(stele, s3, bucket):
    """URLs that boto3 signs are read over http, without keys."""
    for key in "large.safetensors", ODD_KEYS[0], ODD_KEYS[1], ODD_KEYS[2]:
        url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": key})
        need(stele.total(url) == stele.total(f"s3://{bucket}/{key}"), f"{key}: another hash by a presigned URL")
    ok("URLs that boto3 has signed")


def check_onto_itself(stele, bucket, large):
    """An object is replaced while it is read."""
    stele("convert", f"s3://{bucket}/large.safetensors", f"s3://{bucket}/large.safetensors")
    stele.need_equal(f"s3://{bucket}/large.safetensors", large)
    ok("an object is converted onto itself")


def check_no_clobber(stele, s3, bucket, large, small=DIGITS):
    for source, key in (small, "there.safetensors"), (large, "large there.safetensors"):
        stele("convert", "--no-clobber", source, f"s3://{bucket}/{key}")
        before = s3.head_object(Bucket=bucket, Key=key)
        stele.refused("convert", "-n", source, f"s3://{bucket}/{key}", says="exists")
        need(s3.head_object(Bucket=bucket, Key=key)["LastModified"] == before["LastModified"], f"{key} was replaced")
    need_no_uploads(s3, bucket, "--no-clobber")
    ok("--no-clobber: saves a new object, refuses an existing one")


def check_missing(stele, bucket):
    stele.refused("inspect", f"s3://{bucket}/no/such.safetensors", says="not_found")
    stele.refused("inspect", "s3://no-such-bucket-here/x.safetensors", says="nosuchbucket")
    stele.refused("convert", DIGITS, "s3://no-such-bucket-here/x.safetensors", says="nosuchbucket")
    stele.refused("convert", DIGITS, f"s3://{bucket}/", "--to", "safetensors")
    ok("objects and buckets that do not exist: errors")


def check_damaged_source(stele, s3, bucket, large, work):
    """A source that ends early leaves nothing: no object, no parts."""
    cut = work / "cut.safetensors"
    cut.write_bytes(large.read_bytes()[:-MIB])
    stele.refused("convert", cut, f"s3://{bucket}/from-cut.safetensors")
    # An archive whose last tensor is damaged is found out only when most of it has been sent.
    broken, archive = bytearray(), work / "damaged.zip"
    stele("convert", large, archive)
    broken[:] = archive.read_bytes()
    broken[len(broken) - 3 * MIB] ^= 0xFF
    archive.write_bytes(broken)
    stele.refused("convert", archive, f"s3://{bucket}/from-damaged.safetensors")
    keys = [found["Key"] for found in s3.list_objects_v2(Bucket=bucket, Prefix="from-").get("Contents", [])]
    need(not keys, f"a damaged source left objects: {keys}")
    need_no_uploads(s3, bucket, "a damaged source")
    ok("a damaged source: an error, no object, no unfinished upload")


def check_server_killed(stele, work, large):
    """A store that ends while the command saves: an error within a minute."""
    with moto(work) as (endpoint, process):
        s3 = client_of(endpoint)
        make_bucket(s3, "bucket")
        saving = stele.with_variables(**variables_of(endpoint)).start("convert", large, "s3://bucket/x.safetensors")
        while saving.poll() is None and not s3.list_multipart_uploads(Bucket="bucket").get("Uploads"):
            time.sleep(0.01)
        need(saving.poll() is None, "the save has ended before the server could be killed")
        process.kill()
        begun = time.monotonic()
        try:
            _, err = saving.communicate(timeout=120)
        finally:
            saving.kill()
        need(saving.returncode == 2, f"the server was killed: exit status {saving.returncode}: {err}")
    need(time.monotonic() - begun < 60, "the server was killed: the error comes after more than a minute")
    ok(f"a server that is killed: an error after {time.monotonic() - begun:.0f} s")


def check_moto(stele, work):
    large = write_safetensors(work / "large.safetensors", 10, 4 * MIB)
    with moto(work) as (endpoint, _):
        s3, signed = client_of(endpoint), stele.with_variables(**variables_of(endpoint))
        make_bucket(s3, "bucket")
        check_small(signed, s3, "bucket", work)
        check_large(signed, s3, "bucket", large)
        check_hub_folder(signed, s3, "bucket", work)
        check_keys(signed, s3, "bucket", ODD_KEYS + ODD_PLACES)
        check_presigned(signed, s3, "bucket")
        check_onto_itself(signed, "bucket", large)
        check_no_clobber(signed, s3, "bucket", large)
        check_missing(signed, "bucket")
        check_damaged_source(signed, s3, "bucket", large, work)
    check_server_killed(stele, work, large)


def check_other_region(path, stele, large, work):
    """The command learns the region of a bucket from the store's refusal."""
    with versitygw(path, work, "eu-central-1") as endpoint:
        make_bucket(client_of(endpoint, region="eu-central-1"), "bucket")
        signed = stele.with_variables(**variables_of(endpoint))
        for source, key in (DIGITS, "small.safetensors"), (large, "large.safetensors"):
            signed("convert", source, f"s3://bucket/{key}")
            signed.need_equal(f"s3://bucket/{key}", source)
    ok("a bucket of another region than AWS_REGION")


def check_signer(stele, work):
    """The checks with a store that verifies the signature of each request."""
    path = install_versitygw(work)
    if path is None:
        skipped(f"versitygw: no Go compiler, or it does not build ({work}/versitygw-build.log)")
        return
    large = write_safetensors(work / "large.safetensors", 10, 4 * MIB)
    with versitygw(path, work) as endpoint:
        s3, signed = client_of(endpoint), stele.with_variables(**variables_of(endpoint))
        make_bucket(s3, "bucket")
        check_small(signed, s3, "bucket", work)
        check_large(signed, s3, "bucket", large)
        check_hub_folder(signed, s3, "bucket", work)
        check_keys(signed, s3, "bucket", [key for key in ODD_KEYS if "%2F" not in key])
        check_presigned(signed, s3, "bucket")
        check_onto_itself(signed, "bucket", large)
        check_no_clobber(signed, s3, "bucket", large)
        check_missing(signed, "bucket")
        check_damaged_source(signed, s3, "bucket", large, work)
        wrong = stele.with_variables(**variables_of(endpoint, "another secret"))
        wrong.refused("inspect", "s3://bucket/dir/digits.stele", says="SignatureDoesNotMatch")
        wrong.refused("convert", DIGITS, "s3://bucket/x.stele", says="SignatureDoesNotMatch")
        wrong.refused("convert", large, "s3://bucket/x.stele", says="SignatureDoesNotMatch")
        ok("a wrong secret: SignatureDoesNotMatch")
        unsigned = stele.with_variables(AWS_ENDPOINT_URL=endpoint)
        unsigned.refused("inspect", "s3://bucket/dir/digits.stele", says="access")
        ok("no keys: access denied")
    check_other_region(path, stele, large, work)
