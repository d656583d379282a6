"""Checks with faults: the command is killed, connections are cut, a store refuses requests."""
import contextlib
import random
import time

from common import MIB, digest, need, ok, write_safetensors
from proxies import BUSY, CUT_HEADERS, LATE_ERROR, NO_RESULT, Faulty, running
from servers import client_of, make_bucket, moto, variables_of
from stores import body, need_no_uploads

KILLS = 100
TRANSFERS = 30
FAULTS = 0.3
SLOW = 400 * MIB  # bytes per second and connection


def write_saved(stele, path, count, seed=0):
    """Writes a file as the command writes it, so that its saves have the same bytes."""
    plain = write_safetensors(path.with_name("plain-" + path.name), count, 4 * MIB, seed=seed)
    stele("convert", plain, path)
    plain.unlink()
    return path


def abort_uploads(s3, bucket):
    """Removes what a killed command cannot remove. Returns the number of its uploads."""
    left = s3.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    for upload in left:
        with contextlib.suppress(s3.exceptions.NoSuchUpload):  # its last request may still be on the way
            s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    return len(left)


@contextlib.contextmanager
def store_behind(work, **options):
    """Runs moto and a proxy before it. Yields boto3's client, which goes past the proxy, the variables, the proxy."""
    with moto(work) as (endpoint, _):
        proxy = Faulty(int(endpoint.rsplit(":", 1)[1]), **options)
        s3 = client_of(endpoint)
        make_bucket(s3, "bucket")
        with running(proxy) as port:
            yield s3, variables_of(f"http://127.0.0.1:{port}"), proxy


def check_kills(stele, work):
    """Kills saves over an existing object: it is the old one or the new one, whole."""
    files = [write_saved(stele, work / f"version{i}.safetensors", 10, seed=i) for i in (0, 1)]
    digests = [digest(file.read_bytes()) for file in files]
    generator, current, saved, unfinished = random.Random(5), 0, 0, 0
    with store_behind(work, rate=SLOW) as (s3, variables, _):
        signed, url = stele.with_variables(**variables), "s3://bucket/model.safetensors"
        signed("convert", files[current], url)
        begun = time.monotonic()
        signed("convert", files[current], url)
        whole = time.monotonic() - begun
        for i in range(KILLS):
            saving = signed.start("convert", files[1 - current], url)
            time.sleep(generator.uniform(0, 1.1 * whole))
            saving.kill()
            saving.communicate()
            found = digest(body(s3, "bucket", "model.safetensors"))
            need(found in digests, f"kill {i}: the object is neither the old file nor the new one")
            saved += found != digests[current]
            current = digests.index(found)
            unfinished += abort_uploads(s3, "bucket")
        signed("convert", files[1 - current], url)
        need(digest(body(s3, "bucket", "model.safetensors")) == digests[1 - current], "a save after the kills")
    ok(f"{KILLS} kills within {1.1 * whole:.1f} s: always a whole object, {saved} times the new one, "
       f"{unfinished} unfinished uploads")


def check_faulty_uploads(signed, s3, file, counts):
    failed, wanted = [], digest(file.read_bytes())
    for i in range(TRANSFERS):
        status, _, err = signed.run("convert", file, f"s3://bucket/up{i}.safetensors")
        if status != 0:
            need(status == 2 and err, f"upload {i}: status {status} without a message")
            failed.append(err)
        else:
            need(digest(body(s3, "bucket", f"up{i}.safetensors")) == wanted, f"upload {i}: other bytes")
            s3.delete_object(Bucket="bucket", Key=f"up{i}.safetensors")
    left = abort_uploads(s3, "bucket")
    ok(f"{TRANSFERS} uploads with faults: {TRANSFERS - len(failed)} succeed and are equal, {len(failed)} errors, "
       f"{left} unfinished uploads; {dict(counts)}")
    return failed


def check_faulty_downloads(signed, s3, file, work, counts):
    s3.upload_file(str(file), "bucket", "down.safetensors")
    failed, wanted = [], digest(file.read_bytes())
    copy = work / "downloaded.safetensors"
    for i in range(TRANSFERS):
        copy.unlink(missing_ok=True)
        status, _, err = signed.run("convert", "s3://bucket/down.safetensors", copy)
        if status != 0:
            need(status == 2 and err, f"download {i}: status {status} without a message")
            need(not copy.exists(), f"download {i}: failed, but left a file")
            failed.append(err)
        else:
            need(digest(copy.read_bytes()) == wanted, f"download {i}: other bytes")
    ok(f"{TRANSFERS} downloads with faults: {TRANSFERS - len(failed)} succeed and are equal, {len(failed)} errors; "
       f"{dict(counts)}")
    return failed


def check_faults(stele, work):
    file = write_saved(stele, work / "faults.safetensors", 5)
    with store_behind(work, share=FAULTS, seed=1) as (s3, variables, proxy):
        signed = stele.with_variables(**variables)
        errors = check_faulty_uploads(signed, s3, file, proxy.counts)
        proxy.counts.clear()
        errors += check_faulty_downloads(signed, s3, file, work, proxy.counts)
        for error in errors:
            print(f"        error: {error[:200]}")


def check_lost_parts(stele, work):
    """A store that refuses parts, or to complete an upload: an error, the old object, and no unfinished upload."""
    old, new = [write_saved(stele, work / f"version{i}.safetensors", 10, seed=i) for i in (0, 1)]
    part, complete = rb"^PUT .*partNumber=3", rb"^POST .*uploadId="
    for what, pattern, answer, source in (("a part gets 503", part, BUSY, new),
                                          ("the completion gets 503", complete, BUSY, new),
                                          ("the completion gets an error after 200", complete, LATE_ERROR, new),
                                          ("the completion's answer is cut", complete, CUT_HEADERS, new),
                                          ("the completion's answer is empty", complete, NO_RESULT, new),
                                          ("the completion of the same bytes gets 503", complete, BUSY, old)):
        with store_behind(work, refuse=pattern, answer=answer) as (s3, variables, _):
            s3.upload_file(str(old), "bucket", "model.safetensors", Config=eight_mib())
            status, _, err = stele.with_variables(**variables).run("convert", source, "s3://bucket/model.safetensors")
            need(status == 2 and err or source == old, f"{what}: status {status}, and the object was not saved: {err}")
            need(digest(body(s3, "bucket", "model.safetensors")) == digest(old.read_bytes()), f"{what}: other bytes")
            need_no_uploads(s3, "bucket", what)
        ok(f"{what}: the old object, no unfinished upload" + (f" ({err.split(': ', 1)[-1][:80]})" if err else ""))


def eight_mib():
    """Returns settings with which boto3 sends parts of the command's size."""
    from boto3.s3.transfer import TransferConfig
    return TransferConfig(multipart_threshold=8 * MIB, multipart_chunksize=8 * MIB)
