#!/usr/bin/env bash
# Runs the tests that android.sh has built on the device that adb finds: packaging/mobile/emulator.sh ABI. The tests know the
# paths of this checkout, so it must be below /data/local/tmp, where programs may run on a device.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$PWD/build/android-${1:?usage: packaging/mobile/emulator.sh ABI}
case $PWD in
  /data/local/tmp/*) ;;
  *) echo "emulator: the checkout must be below /data/local/tmp" >&2; exit 2 ;;
esac
adb wait-for-device
for part in "$PWD/tests" "$folder/tests"; do
  adb shell mkdir -p "$part"
  adb push "$part/." "$part" >/dev/null
done
adb shell "cd '$PWD/tests' && TMPDIR=/data/local/tmp '$folder/tests/stele_tests'"
