
.
xPlaceholder*
dtype0	*
shape:
!
aConst*
valueB
	P
#
bConst*
valueB	R

sAddV2xa

tMulsb

uCastt*

DstT0
#
hConst*
valueBj€x

ySubuh
!
kConst*
valueB

X

zSelectkyh