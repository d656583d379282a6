
.
xPlaceholder*
dtype0*
shape:

eEnterx

mMergeen

wSwitchmx

nNextIterationw:1

yExitw
#
iIfyx*
then_branchR
f